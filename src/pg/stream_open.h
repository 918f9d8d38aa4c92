/* What opening a stream needs: its options, its dataset, the stores behind it. */
#ifndef TBPG_STREAM_OPEN_H
#define TBPG_STREAM_OPEN_H

#include "pg/dataset.h"
#include "pg/link.h"

typedef struct TbpgOpen
{
	char	   *dataset;		/* either a name ... */
	char	   *query;			/* ... or a query with parameters */
	ArrayType  *params;
	int32		batch_size;
	char	   *shuffle;
	int64		seed;
	int64		epoch;
	int32		rank;
	int32		world_size;
	int32		worker;
	int32		workers;
	char	   *device;
	int32		prefetch;
	char	   *tail;
	char	   *state;			/* NULL: from the beginning */
} TbpgOpen;

typedef struct TbpgOpenDataset
{
	TbpgDatasetInfo info;
	TbpgOwned  *file;			/* NULL: a named one; else the temporary file, removed with the memory context */
} TbpgOpenDataset;

/* Read and check open_stream's arguments. errors: 22023, 0A000, 22004. */
extern void tbpg_open_arguments(FunctionCallInfo fcinfo, TbpgOpen *open);
/* Find a named dataset and check the rights to it, or freeze the query into a temporary file. */
extern void tbpg_open_dataset(const TbpgOpen *open, TbpgOpenDataset *dataset);
/* The streamer has read it. */
extern void tbpg_open_done(TbpgOpenDataset *dataset);

/* peer.c: the client's uid where SQL came over a Unix socket, else -1. */
extern int64 tbpg_peer_uid(void);

/* ,"dataset":{...},"sources":[...] with the current user's credentials. */
extern void tbpg_request_dataset(StringInfo request, const TbpgDatasetInfo *dataset);
/* Tells whether places or credentials have changed since they were sent. */
extern uint64 tbpg_sources_hash(const TbpgDatasetInfo *dataset);
extern void tbpg_request_sources(StringInfo request, const TbpgDatasetInfo *dataset);

#endif
