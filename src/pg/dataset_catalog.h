/* The catalog of named datasets, for the files that read and write it. */
#ifndef TBPG_DATASET_CATALOG_H
#define TBPG_DATASET_CATALOG_H

#include "postgres.h"

/* Run a fixed statement as the catalog's owner, within SPI; rows processed. */
extern uint64 tbpg_catalog_run(const char *statement, int n, const Oid *types, const Datum *values, const char *nulls,
							   bool read_only);

#endif
