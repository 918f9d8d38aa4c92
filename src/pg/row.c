/*
 * From an engine's block row to the columns of a tuple.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "pg/fdw.h"

static Datum
numeric_from_u64(uint64_t value)
{
	char		text[32];

	if (value <= (uint64_t) INT64_MAX)
		return NumericGetDatum(int64_to_numeric((int64) value));
	snprintf(text, sizeof(text), UINT64_FORMAT, (uint64) value);
	return DirectFunctionCall3(numeric_in, CStringGetDatum(text), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
}

static Datum
coord_value(const TbCoord *coord, TbValue value)
{
	switch (coord->kind)
	{
		case TB_COORD_FLOAT:
			return Float8GetDatum(value.f64);
		case TB_COORD_TIME:
			return TimestampTzGetDatum(value.i64 - TBPG_EPOCH_US);
		case TB_COORD_INT:
		case TB_COORD_INDEX:
			return Int64GetDatum(value.i64);
	}
	pg_unreachable();
}

static Datum
extreme_value(const TbArrayMeta *meta, TbValue value)
{
	if (meta->packing.stat == TB_BOOL)
		return BoolGetDatum(value.i64 != 0);
	switch (tb_stat_class(meta))
	{
		case TB_CLASS_F64:
			return Float8GetDatum(value.f64);
		case TB_CLASS_I64:
			return Int64GetDatum(value.i64);
		case TB_CLASS_U64:
			return numeric_from_u64(value.u64);
	}
	pg_unreachable();
}

/* false: NULL */
static bool
stat_value(const TbArrayMeta *meta, const TbLeaf *leaf, TbStat stat, Datum *value)
{
	double		number;

	switch (stat)
	{
		case TB_STAT_MIN:
		case TB_STAT_MAX:
			if (leaf->valid == 0)
				return false;
			*value = extreme_value(meta, stat == TB_STAT_MIN ? leaf->min : leaf->max);
			return true;
		case TB_STAT_MEAN:
		case TB_STAT_STD:
			if (stat == TB_STAT_MEAN ? !tb_leaf_mean(leaf, &number) : !tb_leaf_std(leaf, &number))
				return false;
			*value = Float8GetDatum(number);
			return true;
		case TB_STAT_VALID:
			*value = Int64GetDatum((int64) leaf->valid);
			return true;
		case TB_STAT_NAN:
			*value = Int64GetDatum((int64) leaf->nan);
			return true;
		case TB_STAT_MISSING:
			*value = Int64GetDatum((int64) leaf->missing);
			return true;
		case TB_N_STATS:
			break;
	}
	pg_unreachable();
}

static Datum
state_value(TbBlockState state)
{
	static const char *const names[] = {
		[TB_BLOCK_PRESENT] = "present", [TB_BLOCK_MISSING] = "missing",
		[TB_BLOCK_CONSTANT] = "constant", [TB_BLOCK_UNINDEXED] = "unindexed"
	};

	return CStringGetTextDatum(names[state]);
}

static Datum
ref_value(const TbpgScanState *state, AttrNumber attno, const TbpgColumn *column, const TbRegion *region)
{
	const TbArrayMeta *meta = tb_array_meta(state->table->info->array[column->index]);
	TbpgRef    *ref = tbpg_ref_make(state->table->relid, attno, meta->packing.decoded, region);

	tbpg_ref_stamp(ref, state->user);
	ref->stamp_start = state->stamp_start;
	return PointerGetDatum(ref);
}

void
tbpg_fill_row(const TbpgScanState *state, const TbBlockRow *row, Datum *values, bool *isnull)
{
	const TbpgTable *table = state->table;
	TbRegion	region;

	tb_grid_block_region(table->info, row->index, &region);
	for (int i = 0; i < table->natts; i++)
	{
		const TbpgColumn *column = &table->column[i];
		const TbCoord *coord;
		uint64_t	cell;

		isnull[i] = true;
		values[i] = (Datum) 0;
		if (!state->need_column[i])
			continue;
		isnull[i] = false;
		switch (column->role)
		{
			case TBPG_BLOCK:
				values[i] = Int64GetDatum((int64) row->block);
				break;
			case TBPG_BLOCK_SIZE:
				values[i] = Int64GetDatum((int64) row->elements);
				break;
			case TBPG_BLOCK_STATE:
				values[i] = state_value(row->state);
				break;
			case TBPG_COORD_MIN:
			case TBPG_COORD_MAX:
				coord = &table->info->coord[column->index];
				cell = tb_coord_cell(coord, row->index);
				isnull[i] = coord->null[cell];
				if (!isnull[i])
					values[i] = coord_value(coord, (column->role == TBPG_COORD_MIN ? coord->lo : coord->hi)[cell]);
				break;
			case TBPG_ARRAY:
				values[i] = ref_value(state, (AttrNumber) (i + 1), column, &region);
				break;
			case TBPG_STAT:
				isnull[i] = !row->known[column->index] ||
					!stat_value(tb_array_meta(table->info->array[column->index]), &row->leaf[column->index],
								column->stat, &values[i]);
				break;
			case TBPG_UNUSED:
				isnull[i] = true;
				break;
		}
	}
}
