/*
 * The foreign data wrapper's handler: which callbacks there are. Tables are read-only.
 */
#include "postgres.h"

#include "fmgr.h"

#include "pg/fdw.h"

PG_FUNCTION_INFO_V1(tensorbank_handler);

Datum
tensorbank_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	routine->GetForeignRelSize = tbpg_get_rel_size;
	routine->GetForeignPaths = tbpg_get_paths;
	routine->GetForeignPlan = tbpg_get_plan;
	routine->BeginForeignScan = tbpg_begin_scan;
	routine->IterateForeignScan = tbpg_iterate_scan;
	routine->ReScanForeignScan = tbpg_rescan;
	routine->EndForeignScan = tbpg_end_scan;
	routine->ExplainForeignScan = tbpg_explain_scan;
	routine->IsForeignScanParallelSafe = tbpg_scan_parallel_safe;
	routine->EstimateDSMForeignScan = tbpg_estimate_dsm;
	routine->InitializeDSMForeignScan = tbpg_init_dsm;
	routine->ReInitializeDSMForeignScan = tbpg_reinit_dsm;
	routine->InitializeWorkerForeignScan = tbpg_init_worker;
	routine->ShutdownForeignScan = tbpg_shutdown_scan;
	routine->IsForeignPathAsyncCapable = tbpg_async_capable;
	routine->ForeignAsyncRequest = tbpg_async_request;
	routine->ForeignAsyncConfigureWait = tbpg_async_configure;
	routine->ForeignAsyncNotify = tbpg_async_notify;
	routine->ImportForeignSchema = tbpg_import_schema;
	PG_RETURN_POINTER(routine);
}
