/* Private to the room: judging a scan's predicate over nodes, with what an index and coordinates
 * say of them. */
#ifndef TB_HSI_PRUNE_H
#define TB_HSI_PRUNE_H

#include "hsi/index.h"

/* Which stored arrays are wanted, as a list and as a table. */
typedef struct TbNeeds
{
	int			n;
	int		   *array;			/* owned; in the grid */
	uint16_t   *stored;			/* owned; TbStored */
	int16_t    *at;				/* owned; per grid array and TbStored: place in the list, -1 */
} TbNeeds;

/* The wanted chunks of one place. */
typedef struct TbBundle
{
	bool		open;			/* in use */
	bool		none;			/* there is no index here */
	bool		ready;
	bool		damaged;		/* some chunk is: what is in it is not known */
	int			level;
	uint64_t	number;			/* of the chunk, in the head's numbering */
	const TbNeeds *needs;
	TbHsiChunk **chunk;			/* owned list of references */
	TbBox		box;			/* of the head's chunk */
} TbBundle;

/* Everything that judging needs, made once a scan. */
typedef struct TbProbe
{
	TbGrid	   *grid;			/* owned reference */
	const TbGridInfo *info;
	TbHsi	   *hsi;			/* owned reference; NULL: none that fits */
	const TbPred *pred;			/* borrowed; NULL: all */
	const TbGeometry *geo;		/* the index's view, or own */
	TbGeometry *own_geo;		/* owned */
	TbCoordTable *coord;		/* the index's where it is of the same grid, else owned */
	bool		own_coord;
	int			n_levels_stored;	/* levels with statistics: 0 without an index */
	bool		uses_coords;	/* the predicate names the block or coordinates */
	bool		uses_stats;
	bool	   *need;			/* owned; arrays whose statistics rows must have */
	bool		any_need;
	bool		all_mapped;		/* the index has every one of them */
	TbNeeds		leaf;			/* of the predicate at level 0 */
	TbNeeds		inner;
	TbNeeds		row;			/* of rows */
	TbIndexCost cost;
	bool		saw_damage;
} TbProbe;

/* grid's info, index and predicate as in TbScanSpec. errors: NOMEM. */
extern TbStatus tb_probe_init(TbProbe *probe, const TbScanSpec *spec, TbError *err) TB_MUST_CHECK;
extern void tb_probe_clear(TbProbe *probe);

extern TbStatus tb_bundle_init(TbBundle *bundle, const TbNeeds *needs, TbError *err) TB_MUST_CHECK;
extern void tb_bundle_clear(TbBundle *bundle, TbHsi *hsi);
/* Turn to the chunk that holds a node; starts loading. needs: as given to init. */
extern TbStatus tb_bundle_open(TbBundle *bundle, TbProbe *probe, int level, const uint64_t *node,
							   TbError *err) TB_MUST_CHECK;
extern TbStatus tb_bundle_poll(TbBundle *bundle, TbProbe *probe, TbError *err) TB_MUST_CHECK;
extern void tb_bundle_close(TbBundle *bundle, TbHsi *hsi);
/* Only what is in memory; ready says whether all of it was. */
extern void tb_bundle_peek(TbBundle *bundle, TbProbe *probe, int level, const uint64_t *node);
/* Place of a node in the bundle's chunks. */
extern size_t tb_bundle_slot(const TbBundle *bundle, int ndim, const uint64_t *node);

/* A node, with what is known of it beside its coordinates. */
typedef struct TbSubject
{
	const TbProbe *probe;
	int			level;
	const uint64_t *node;		/* index along each axis */
	const TbBundle *bundle;		/* NULL: no statistics from the index */
	size_t		slot;
	const TbLeaf *leaf; /* NULL, or per grid array: statistics computed or loaded for a row */
	const bool *known;
} TbSubject;

/* Truth set of the predicate over the subject. */
extern int	tb_subject_judge(const TbSubject *subject);
/* Statistics of a node may be believed: its blocks are as they were. */
extern bool tb_probe_trusts(const TbProbe *probe, int level, const uint64_t *node);
/* Blocks of a node as a box, clipped to the grid. */
extern void tb_probe_blocks(const TbProbe *probe, int level, const uint64_t *node, TbBox *box);
/* Elements of the blocks in a box. */
extern uint64_t tb_probe_elements(const TbGridInfo *info, const TbBox *box);

#endif
