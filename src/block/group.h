/* Opening a group: shared by group.c (which way to go) and group_walk.c (listing). */
#ifndef TB_BLOCK_GROUP_H
#define TB_BLOCK_GROUP_H

#include "block/internal.h"

#define TB_WALKERS 16

typedef enum TbGroupStage
{
	TB_GROUP_ROOT,				/* the node's own documents */
	TB_GROUP_WALK,				/* nodes below, by listing */
	TB_GROUP_ABOVE,				/* consolidated metadata of the groups above */
	TB_GROUP_MARKS,				/* nothing found: is it another format? */
	TB_GROUP_FOLDERS,			/* is it one that only its folders tell? */
	TB_GROUP_SETTLED
} TbGroupStage;

/* A folder whose documents are being read. */
typedef struct TbWalker
{
	TbGroup    *group;			/* borrowed */
	char	   *path;			/* owned; NULL: idle */
	int			depth;
	TbJob	   *list;			/* owned; what is in the folder; NULL: idle */
	bool		listed;			/* it is known */
	bool		v3;				/* which documents were asked for */
	bool		v2;
	TbDocs		docs;
} TbWalker;

typedef struct TbFolder
{
	struct TbFolder *next;
	char	   *path;			/* owned */
	int			depth;
} TbFolder;

struct TbGroup
{
	TbSource   *source;			/* a reference */
	char	   *path;			/* owned */
	TbGroupStage stage;
	TbDocs		docs;
	TbNodes		nodes;			/* owned */
	char	   *above;			/* owned; the ancestor being asked */
	TbStatus	status;
	TbError		error;
	bool		has_names;		/* listing showed something there */
	bool		no_list;		/* listing is refused */
	TbJob	   *folders;		/* owned; the path itself is listed; NULL: no */

	/* walking */
	TbWalker	walker[TB_WALKERS];
	int			walking;
	TbFolder   *folder;			/* owned list, to be walked */
	size_t		n_folders;		/* seen in all */
};

/* Go on until something must be waited for. */
extern void tb_group_advance(TbGroup *group);
extern void tb_group_settle(TbGroup *group, TbStatus status, const TbError *error);

/* Walk the hierarchy from the group's path; the root's documents are asked for again from the
 * cache. */
extern void tb_group_walk_begin(TbGroup *group);
/* Start what can be started. false: nothing is left and nothing in flight. */
extern bool tb_group_walk(TbGroup *group);
extern void tb_group_walk_end(TbGroup *group);
/* Go on with a folder whose listing has ended. The group may settle. */
extern void tb_group_walk_look(TbWalker *walker);
/* Begin anew, with what is known by now. */
extern void tb_group_restart(TbGroup *group);

#endif
