/*
 * Datasets as the server knows them: freezing a query, the catalog of named ones, the rights that opening one
 * needs.
 */
#ifndef TBPG_DATASET_H
#define TBPG_DATASET_H

#include "pg/query.h"
#include "pg/tbpg.h"

#include "lib/stringinfo.h"
#include "nodes/parsenodes.h"
#include "utils/array.h"
#include "utils/tuplesort.h"

/* Somebody's right to read that a dataset stands on. */
typedef struct TbpgRight
{
	Oid			relid;
	AttrNumber	attnum;			/* of a tensor_ref; 0: any column of a relation that the query names */
	Oid			user;			/* refs: whose right counted (a view's owner, say); relations: the owner */
} TbpgRight;

/* A store that samples lie in. */
typedef struct TbpgStore
{
	char	   *server;
	char	   *url;			/* when it was frozen */
} TbpgStore;

typedef struct TbpgDatasetInfo
{
	char	   *name;			/* NULL: anonymous */
	Oid			owner;
	char		hash[65];
	int64		samples;
	TbpgStore	place;			/* where the file lies; server NULL: url is a path in the data directory */
	char	   *columns;		/* JSON */
	List	   *rights;			/* of TbpgRight */
	List	   *stores;			/* of TbpgStore, distinct */
} TbpgDatasetInfo;

/* ---- freeze.c ---- */
/* What the frozen query gave; file is owned by the current memory context. */
typedef struct TbpgFrozen
{
	TbpgDatasetInfo info;		/* without name and place */
	Oid			server;			/* of the first tensor_ref column */
	TbBuf	   *file;
} TbpgFrozen;
/*
 * Run a query as the current user, read-only, and freeze its rows. errors: tbpg_query_check's; 22004 NULL refs,
 * 2202E shapes that differ, 22023 no rows or no tensor_ref column, 42701 two columns of a name; rights and stores
 * of refs.
 */
extern void tbpg_freeze(const char *text, ArrayType *params, TbpgFrozen *frozen);

/* ---- freeze_row.c: rows as bytes that sort in the dataset's order ---- */
typedef struct TbpgFreezeArray
{
	Oid			relid;
	AttrNumber	attnum;
	Oid			user;
	Oid			server;
	TbDatasetArray array;		/* strings in the freezer's context; server encoding */
	bool		written;
	uint32		id;				/* in the file, once written */
} TbpgFreezeArray;

typedef struct TbpgFreezeColumn
{
	char	   *name;
	Oid			type;
	bool		is_ref;
	TbScalarType scalar;
	Oid			output;			/* function, where the value travels as text */
	/* refs: what the first row had, and what else came */
	bool		seen;
	TbTreatment treatment;
	TbDtype		dtype;
	int			ndim;
	uint64_t	shape[TB_MAX_DIM];
	List	   *others;			/* descriptions (char *) of other shapes, at most a few */
	uint64		n_others;		/* rows with another shape */
	uint64		n_null;
} TbpgFreezeColumn;

typedef struct TbpgFreezer
{
	MemoryContext context;		/* everything of it */
	int			n_columns;
	TbpgFreezeColumn *column;
	int			n_arrays;
	int			max_arrays;
	TbpgFreezeArray **array;
	struct HTAB *array_index;	/* of ArrayKey */
	bool		spoiled;		/* NULL refs or shapes that differ: rows are only counted any more */
	uint64		n_rows;
	TbDatasetWriter *writer;	/* owned by context */
	TbDatasetCell *cell;		/* [n_columns] */
} TbpgFreezer;

/* Append a row to a key; false: the row has a NULL ref or another shape, which is noted. */
extern bool tbpg_freeze_encode(TbpgFreezer *freezer, const Datum *value, const bool *null, StringInfo key);
/* Write an encoded row to the file. */
extern void tbpg_freeze_write(TbpgFreezer *freezer, const char *key, size_t len);

/* ---- dataset_catalog.c: named datasets ---- */
extern bool tbpg_dataset_find(const char *name, TbpgDatasetInfo *info);	/* no check of rights */
extern void tbpg_dataset_insert(const TbpgDatasetInfo *info, const char *query, ArrayType *params);
/*
 * May the current user open it? Owner or granted; and the owner may still read what it was made of. errors: 42501,
 * 42P01, 42703.
 */
extern void tbpg_dataset_check(const TbpgDatasetInfo *info);
/* A copy in a memory context of its own below parent. */
extern TbpgDatasetInfo *tbpg_dataset_copy(const TbpgDatasetInfo *info, MemoryContext context);

#endif
