/*
 * The type tensor_ref: a lazy rectangular region of an array, named by table and column. Here:
 * making, stamping and resolving refs, and comparing them; text form: ref_text.c, functions:
 * ref_func.c.
 *
 * Rights. Whoever uses a ref needs SELECT on its column. A foreign scan stamps the refs it makes
 * with the user it runs as, so that a view can filter rows for users who may not read the table:
 * within the same statement of the same session (leader and parallel workers), and while the scan is
 * open (a cursor's rows come in later statements), the stamped user's rights count. Text and
 * everything that reaches beyond the row carries no stamp.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "common/hashfn.h"
#include "lib/ilist.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "pg/ref.h"

PG_FUNCTION_INFO_V1(tensorbank_ref_in);
PG_FUNCTION_INFO_V1(tensorbank_ref_out);
PG_FUNCTION_INFO_V1(tensorbank_ref_recv);
PG_FUNCTION_INFO_V1(tensorbank_ref_send);
PG_FUNCTION_INFO_V1(tensorbank_ref_eq);
PG_FUNCTION_INFO_V1(tensorbank_ref_ne);
PG_FUNCTION_INFO_V1(tensorbank_ref_lt);
PG_FUNCTION_INFO_V1(tensorbank_ref_le);
PG_FUNCTION_INFO_V1(tensorbank_ref_gt);
PG_FUNCTION_INFO_V1(tensorbank_ref_ge);
PG_FUNCTION_INFO_V1(tensorbank_ref_cmp);
PG_FUNCTION_INFO_V1(tensorbank_ref_hash);
PG_FUNCTION_INFO_V1(tensorbank_ref_hash_extended);

#define REF_VERSION 1

/* ---- making ---- */

TbpgRef *
tbpg_ref_new(int ndim)
{
	TbpgRef    *ref = palloc0(TBPG_REF_SIZE(ndim));

	Assert(ndim >= 0 && ndim <= TBPG_REF_MAX_DIM);
	SET_VARSIZE(ref, TBPG_REF_SIZE(ndim));
	ref->version = REF_VERSION;
	ref->ndim = (uint8) ndim;
	return ref;
}

TbpgRef *
tbpg_ref_make(Oid relid, AttrNumber attnum, TbDtype dtype, const TbRegion *region)
{
	TbpgRef    *ref = tbpg_ref_new(region->ndim);

	ref->relid = relid;
	ref->attnum = attnum;
	ref->dtype = (uint8) dtype;
	for (int d = 0; d < region->ndim; d++)
	{
		tbpg_ref_start(ref)[d] = (int64) region->start[d];
		tbpg_ref_count(ref)[d] = (int64) region->count[d];
	}
	return ref;
}

TbpgRef *
tbpg_ref_copy(const TbpgRef *ref, bool unstamped)
{
	TbpgRef    *copy = palloc(TBPG_REF_SIZE(ref->ndim));

	memcpy(copy, ref, TBPG_REF_SIZE(ref->ndim));
	if (unstamped)
	{
		copy->flags &= ~TBPG_REF_STAMPED;
		copy->stamp_user = InvalidOid;
		copy->stamp_pid = 0;
		copy->stamp_start = 0;
	}
	return copy;
}

TbpgRef *
tbpg_ref_treated(const TbpgRef *ref, TbTreatment treatment, TbDtype dtype)
{
	TbpgRef    *copy = tbpg_ref_copy(ref, false);

	copy->flags = (uint8) ((copy->flags & ~TBPG_REF_RAW) | (treatment.raw ? TBPG_REF_RAW : 0));
	copy->cast = (uint8) treatment.cast;
	copy->dtype = (uint8) dtype;
	return copy;
}

/* ---- stamps ---- */

/* The process that runs the statement, also seen from its parallel workers. */
static int32
leader_pid(void)
{
	return MyProc != NULL && MyProc->lockGroupLeader != NULL ? MyProc->lockGroupLeader->pid
															 : MyProcPid;
}

void
tbpg_ref_stamp(TbpgRef *ref, Oid user)
{
	ref->flags |= TBPG_REF_STAMPED;
	ref->stamp_user = OidIsValid(user) ? user : GetUserId();
	ref->stamp_pid = leader_pid();
	ref->stamp_start = GetCurrentStatementStartTimestamp();
}

typedef struct OpenStamp
{
	dlist_node	node;
	int64		start;
	MemoryContextCallback callback;
} OpenStamp;

static dlist_head open_stamps = DLIST_STATIC_INIT(open_stamps);

static void
close_stamp(void *arg)
{
	dlist_delete(&((OpenStamp *) arg)->node);
}

int64
tbpg_stamp_open(MemoryContext context)
{
	OpenStamp  *stamp = MemoryContextAllocZero(context, sizeof(OpenStamp));

	stamp->start = GetCurrentStatementStartTimestamp();
	dlist_push_head(&open_stamps, &stamp->node);
	stamp->callback.func = close_stamp;
	stamp->callback.arg = stamp;
	MemoryContextRegisterResetCallback(context, &stamp->callback);
	return stamp->start;
}

bool
tbpg_ref_is_live(const TbpgRef *ref)
{
	dlist_iter	iter;

	if ((ref->flags & TBPG_REF_STAMPED) == 0 || ref->stamp_pid != leader_pid())
		return false;
	if (ref->stamp_start == GetCurrentStatementStartTimestamp())
		return true;
	dlist_foreach(iter, &open_stamps)
		if (dlist_container(OpenStamp, node, iter.cur)->start == ref->stamp_start)
			return true;
	return false;
}

Oid
tbpg_ref_user(const TbpgRef *ref)
{
	return tbpg_ref_is_live(ref) ? ref->stamp_user : GetUserId();
}

/* ---- resolving ---- */

void
tbpg_ref_check_column(Oid relid, AttrNumber attnum, Oid user)
{
	HeapTuple	tuple;
	Oid			type;

	/* from here on nobody can drop it under us */
	LockRelationOid(relid, AccessShareLock);
	if (get_rel_relkind(relid) != RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("foreign table of the tensor_ref does not exist"),
				 errdetail("It had the OID %u.", relid),
				 errhint("Make the tensor_ref anew from a table that exists.")));
	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid), Int16GetDatum(attnum));
	if (!HeapTupleIsValid(tuple) || ((Form_pg_attribute) GETSTRUCT(tuple))->attisdropped)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column of the tensor_ref does not exist"),
				 errdetail("It was column %d of foreign table \"%s\".",
						attnum, get_rel_name(relid)),
				 errhint("Make the tensor_ref anew from a column that exists.")));
	type = ((Form_pg_attribute) GETSTRUCT(tuple))->atttypid;
	if (type != tbpg_tensor_ref_oid())
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("column \"%s\" of foreign table \"%s\" is no tensor_ref",
							   NameStr(((Form_pg_attribute) GETSTRUCT(tuple))->attname),
							   get_rel_name(relid))));
	ReleaseSysCache(tuple);
	if (pg_class_aclcheck(relid, user, ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck(relid, attnum, user, ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FOREIGN_TABLE, get_rel_name(relid));
}

/* The region lies inside the array as it is now, and has the type it was made with. */
static void
check_against_array(const TbpgRef *ref, const TbpgResolved *resolved)
{
	const TbArrayMeta *meta = tb_array_meta(resolved->array);
	TbDtype		dtype = tb_treated_dtype(meta, resolved->treatment);
	const int64 *start = tbpg_ref_start_of(ref);
	const int64 *count = tbpg_ref_count_of(ref);

	if (ref->ndim != meta->ndim)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("tensor_ref has another number of dimensions than its array"),
				 errdetail("%s; the array has %d.", tbpg_ref_print(ref), meta->ndim)));
	for (int d = 0; d < ref->ndim; d++)
		if (start[d] < 0 || count[d] < 0 || (uint64_t) start[d] > meta->shape[d] ||
			(uint64_t) count[d] > meta->shape[d] - (uint64_t) start[d])
			ereport(ERROR,
					(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
					 errmsg("tensor_ref lies outside its array"),
					 errdetail("%s; dimension \"%s\" has the length %llu.", tbpg_ref_print(ref),
							   meta->dim_name[d], (unsigned long long) meta->shape[d])));
	if (dtype != (TbDtype) ref->dtype)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_DATA_TYPE),
				 errmsg("tensor_ref has another element type than its array"),
				 errdetail("%s; the array gives %s.", tbpg_ref_print(ref), tb_dtype_name(dtype)),
				 errhint("Make the tensor_ref anew, or set the type with tensorbank.as_type().")));
}

void
tbpg_ref_resolve(const TbpgRef *ref, TbpgResolved *resolved)
{
	const TbpgColumn *column;

	resolved->user = tbpg_ref_user(ref);
	tbpg_ref_check_column(ref->relid, ref->attnum, resolved->user);
	resolved->table = tbpg_table(ref->relid, resolved->user);
	if (ref->attnum > resolved->table->natts ||
		resolved->table->column[ref->attnum - 1].role != TBPG_ARRAY)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("column of the tensor_ref stands for no array")));
	column = &resolved->table->column[ref->attnum - 1];
	resolved->array = resolved->table->info->array[column->index];
	resolved->treatment.raw = (ref->flags & TBPG_REF_RAW) != 0;
	resolved->treatment.cast = (TbDtype) ref->cast;
	resolved->dtype = (TbDtype) ref->dtype;
	check_against_array(ref, resolved);
	resolved->region.ndim = ref->ndim;
	for (int d = 0; d < ref->ndim; d++)
	{
		resolved->region.start[d] = (uint64_t) tbpg_ref_start_of(ref)[d];
		resolved->region.count[d] = (uint64_t) tbpg_ref_count_of(ref)[d];
	}
}

/* ---- input and output ---- */

Datum
tensorbank_ref_in(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(tbpg_ref_scan(PG_GETARG_CSTRING(0)));
}

Datum
tensorbank_ref_out(PG_FUNCTION_ARGS)
{
	PG_RETURN_CSTRING(tbpg_ref_print(PG_GETARG_TBREF(0)));
}

/* The binary form is the text: a binary one with OIDs would mean something else elsewhere, and
 * could forge a stamp. */
Datum
tensorbank_ref_recv(PG_FUNCTION_ARGS)
{
	StringInfo	message = (StringInfo) PG_GETARG_POINTER(0);
	int			len;

	PG_RETURN_POINTER(tbpg_ref_scan(pq_getmsgtext(message, message->len - message->cursor, &len)));
}

Datum
tensorbank_ref_send(PG_FUNCTION_ARGS)
{
	char	   *printed = tbpg_ref_print(PG_GETARG_TBREF(0));
	StringInfoData out;

	pq_begintypsend(&out);
	pq_sendtext(&out, printed, (int) strlen(printed));
	PG_RETURN_BYTEA_P(pq_endtypsend(&out));
}

/* ---- comparing: everything but the stamp ---- */

static int
compare_refs(const TbpgRef *a, const TbpgRef *b)
{
#define COMPARE(x, y) do { if ((x) != (y)) return (x) < (y) ? -1 : 1; } while (0)
	COMPARE(a->relid, b->relid);
	COMPARE(a->attnum, b->attnum);
	COMPARE(a->ndim, b->ndim);
	for (int i = 0; i < 2 * a->ndim; i++)
		COMPARE(a->extent[i], b->extent[i]);
	COMPARE(a->flags & TBPG_REF_RAW, b->flags & TBPG_REF_RAW);
	COMPARE(a->cast, b->cast);
	COMPARE(a->dtype, b->dtype);
#undef COMPARE
	return 0;
}

static uint64
hash_ref(const TbpgRef *ref, uint64 seed)
{
	TbpgRef    *plain = tbpg_ref_copy(ref, true);

	return DatumGetUInt64(
		hash_any_extended((unsigned char *) plain, (int) TBPG_REF_SIZE(plain->ndim), seed));
}

#define COMPARISON(name, op) \
	Datum \
	tensorbank_ref_##name(PG_FUNCTION_ARGS) \
	{ \
		PG_RETURN_BOOL(compare_refs(PG_GETARG_TBREF(0), PG_GETARG_TBREF(1)) op 0); \
	}

COMPARISON(eq, ==)
COMPARISON(ne, !=)
COMPARISON(lt, <)
COMPARISON(le, <=)
COMPARISON(gt, >)
COMPARISON(ge, >=)

Datum
tensorbank_ref_cmp(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(compare_refs(PG_GETARG_TBREF(0), PG_GETARG_TBREF(1)));
}

Datum
tensorbank_ref_hash(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32((int32) hash_ref(PG_GETARG_TBREF(0), 0));
}

Datum
tensorbank_ref_hash_extended(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) hash_ref(PG_GETARG_TBREF(0), (uint64) PG_GETARG_INT64(1)));
}
