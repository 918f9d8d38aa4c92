/*
 * Differences between PostgreSQL majors, the only place that looks at PG_VERSION_NUM. Each shim names the
 * release that makes it unnecessary and goes with it. Floor: 15.
 */
#ifndef TBPG_COMPAT_H
#define TBPG_COMPAT_H

#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "utils/acl.h"

#if PG_VERSION_NUM < 150000
#error "tensorbank needs PostgreSQL 15 or newer"
#endif

/* 16: one object_aclcheck for every kind of object. */
#if PG_VERSION_NUM < 160000
#define tbpg_fdw_aclcheck(oid, role, mode) pg_foreign_data_wrapper_aclcheck(oid, role, mode)
#define tbpg_server_aclcheck(oid, role, mode) pg_foreign_server_aclcheck(oid, role, mode)
#define tbpg_class_ownercheck(oid, role) pg_class_ownercheck(oid, role)
#else
#define tbpg_fdw_aclcheck(oid, role, mode) object_aclcheck(ForeignDataWrapperRelationId, oid, role, mode)
#define tbpg_server_aclcheck(oid, role, mode) object_aclcheck(ForeignServerRelationId, oid, role, mode)
#define tbpg_class_ownercheck(oid, role) object_ownercheck(RelationRelationId, oid, role)
#endif

/* 16: ForeignScan says itself whose rights it uses. */
#if PG_VERSION_NUM < 160000
#define tbpg_scan_user(node) \
	(exec_rt_fetch(((Scan *) (node)->ss.ps.plan)->scanrelid, (node)->ss.ps.state)->checkAsUser)
#else
#define tbpg_scan_user(node) (((ForeignScan *) (node)->ss.ps.plan)->checkAsUser)
#endif

/* 16: permissions have a list of their own. */
#if PG_VERSION_NUM < 160000
#define tbpg_check_permissions(stmt) ((void) ExecCheckRTPerms((stmt)->rtable, true))
#define tbpg_plan_user(scan, rte) ((rte)->checkAsUser)
#define tbpg_has_permissions(rte) ((rte)->requiredPerms != 0)
#else
#define tbpg_check_permissions(stmt) ((void) ExecCheckPermissions((stmt)->rtable, (stmt)->permInfos, true))
#define tbpg_plan_user(scan, rte) ((scan)->checkAsUser)
#define tbpg_has_permissions(rte) ((rte)->perminfoindex != 0)
#endif

/* 16: permissions beside the range table. 18: which relations were not pruned. */
#if PG_VERSION_NUM >= 180000
#define tbpg_init_range_table(estate, stmt) \
	ExecInitRangeTable(estate, (stmt)->rtable, (stmt)->permInfos, bms_copy((stmt)->unprunableRelids))
#elif PG_VERSION_NUM >= 160000
#define tbpg_init_range_table(estate, stmt) ExecInitRangeTable(estate, (stmt)->rtable, (stmt)->permInfos)
#else
#define tbpg_init_range_table(estate, stmt) ExecInitRangeTable(estate, (stmt)->rtable)
#endif

/* 17: create_foreignscan_path takes the restriction clauses of a join. 18: disabled nodes. */
#if PG_VERSION_NUM >= 180000
#define tbpg_foreignscan_path(root, rel, rows, startup, total, pathkeys, outer, extra) \
	create_foreignscan_path(root, rel, NULL, rows, 0, startup, total, pathkeys, outer, extra, NIL, NIL)
#elif PG_VERSION_NUM >= 170000
#define tbpg_foreignscan_path(root, rel, rows, startup, total, pathkeys, outer, extra) \
	create_foreignscan_path(root, rel, NULL, rows, startup, total, pathkeys, outer, extra, NIL, NIL)
#else
#define tbpg_foreignscan_path(root, rel, rows, startup, total, pathkeys, outer, extra) \
	create_foreignscan_path(root, rel, NULL, rows, startup, total, pathkeys, outer, extra, NIL)
#endif

/* 16: tuplesort_getdatum says whether it copies. */
#if PG_VERSION_NUM < 160000
#define tbpg_tuplesort_getdatum(sort, value, isnull) tuplesort_getdatum(sort, true, value, isnull, NULL)
#else
#define tbpg_tuplesort_getdatum(sort, value, isnull) tuplesort_getdatum(sort, true, true, value, isnull, NULL)
#endif

/* 18: EXPLAIN's headers came apart, path keys have a comparison type, the attribute has another name. */
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#define tbpg_pathkey_descending(key) ((key)->pk_cmptype == COMPARE_GT)
#define pg_attribute_noreturn() __attribute__((noreturn))
#define tbpg_op_meanings(opno) get_op_index_interpretation(opno)
#define tbpg_op_compare(meaning) ((int) (meaning)->cmptype)
#define TBPG_COMPARE_NE COMPARE_NE
#define TbpgOpMeaning OpIndexInterpretation
#else
#define tbpg_op_meanings(opno) get_op_btree_interpretation(opno)
#define tbpg_op_compare(meaning) ((meaning)->strategy)
#define TBPG_COMPARE_NE ROWCOMPARE_NE
#define TbpgOpMeaning OpBtreeInterpretation
#include "commands/explain.h"
#define tbpg_pathkey_descending(key) ((key)->pk_strategy == BTGreaterStrategyNumber)
#endif

/* 17: WaitEventSets belong to resource owners. A persistent one names none. */
#if PG_VERSION_NUM < 170000
#define tbpg_create_wait_set(n) CreateWaitEventSet(TopMemoryContext, n)
#else
#define tbpg_create_wait_set(n) CreateWaitEventSet(NULL, n)
#endif

#endif
