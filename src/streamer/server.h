/*
 * The server: listening sockets, connections, their requests and replies. All on the loop's thread.
 *
 * Replies leave a connection in the order of its requests, so a request makes its reply at once
 * and one that cannot be answered yet is attempted again whenever something changed that the
 * connection waits for.
 */
#ifndef TB_STREAMER_SERVER_H
#define TB_STREAMER_SERVER_H

#include "stream/stream.h"
#include "streamer/listen.h"
#include "streamer/options.h"

typedef struct TbServer TbServer;
typedef struct TbConn TbConn;
typedef struct TbReply TbReply;

/* AGAIN; OK: the members of the reply are appended to reply->body; else the error is the reply. */
typedef TbStatus (*TbAttempt) (TbReply *reply, TbError *err);

struct TbReply
{
	TbReply    *next;
	TbConn	   *conn;			/* borrowed */
	TbAttempt	attempt;
	bool		ready;
	bool		busy;			/* the error is that every slot is held */
	TbBuf	   *body;			/* owned */
	int			fd;				/* borrowed until the reply is sent; -1: none */
	uint64_t	stream;			/* what it is about: numbers, since what they name may go */
	uint64_t   *loads;			/* owned */
	size_t		n_loads;
	TbHandle	handle;
};

/* An operation. begin reads the request, which is freed after it, and sets what attempt needs. */
typedef struct TbOp
{
	const char *name;
	TbStatus	(*begin) (TbConn *conn, const TbJson *request, TbReply *reply, TbError *err);
	TbAttempt	attempt;		/* NULL: begin has answered */
} TbOp;

/* A stream and the connections that it hangs on. */
typedef struct TbOpened
{
	struct TbOpened *next;
	TbStream   *stream;			/* owned */
	TbConn	   *control;		/* borrowed; who opened it */
	TbConn	   *client;			/* borrowed; who redeemed its token; NULL: nobody yet */
	bool		asked;			/* a next waits */
} TbOpened;

/* A load of a control connection. */
typedef struct TbLoaded
{
	struct TbLoaded *next;
	uint64_t	id;				/* its handle's generation */
	TbDelivery *delivery;		/* owned */
} TbLoaded;

typedef struct TbListening
{
	TbWatch		watch;			/* first: the loop gives it back */
	TbTimer		rest;			/* no descriptors left: accept again after this */
	TbServer   *server;
	TbSocketFile file;
	bool		control;
	bool		watched;
} TbListening;

struct TbConn
{
	TbWatch		watch;			/* first: the loop gives it back */
	TbServer   *server;			/* borrowed */
	TbConn	   *next;
	TbWire	   *wire;			/* owned */
	bool		control;
	bool		dead;			/* to be freed when the calls on it have returned */
	int64_t		uid;			/* of the peer */
	TbReply    *first;			/* owned list */
	TbReply    *last;
	uint32_t	n_replies;
	TbTask		kick;			/* deferred: run it */
	bool		kicked;
	TbTimer		patience;		/* client: how long it may stay without a stream */

	/* control */
	bool		greeted;
	int64_t		pid;
	char	   *role;			/* owned */
	TbLoaded   *loads;			/* owned list */
	uint32_t	n_loads;

	/* client */
	uint64_t	stream;			/* 0: no token redeemed */
};

struct TbServer
{
	TbHub	   *hub;			/* owned */
	TbLoop	   *loop;			/* borrowed from it */
	const TbOptions *options;	/* borrowed */
	TbListening control;
	TbListening client;
	TbConn	   *conns;			/* owned list */
	uint32_t	n_conns;
	TbOpened   *opened;			/* owned list */
	bool		stop;
};

/* server.c */
extern TbStatus tb_server_new(const TbOptions *options, TbServer **server,
							  TbError *err) TB_MUST_CHECK;
extern void tb_server_run(TbServer *server);	/* until something sets stop */
extern void tb_server_free(TbServer *server);

/* conn.c */
extern void tb_conn_new(TbServer *server, int fd, bool control);
extern void tb_conn_free(TbConn *conn);
extern void tb_conn_kick(TbConn *conn); /* run it soon */
extern TbListener tb_conn_listener(TbConn *conn);

/* opened.c */
extern TbOpened *tb_opened_add(TbConn *conn, TbStream *stream); /* NULL when memory is gone */
extern TbOpened *tb_opened_find(TbServer *server, uint64_t id);
extern void tb_opened_close(TbServer *server, TbOpened *opened);
extern void tb_opened_close_all(TbConn *conn);	/* every stream that hangs on it */
extern TbStatus tb_opened_attempt_next(TbReply *reply, TbError *err);

/* control.c, load_ops.c, client.c: tables ended by a NULL name */
extern const TbOp tb_control_ops[];
extern const TbOp tb_client_ops[];
extern TbStatus tb_op_load(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err);
extern TbStatus tb_op_load_attempt(TbReply *reply, TbError *err);
extern TbStatus tb_op_wait(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err);
extern TbStatus tb_op_wait_attempt(TbReply *reply, TbError *err);
extern TbStatus tb_op_fetch(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err);
extern TbStatus tb_op_fetch_attempt(TbReply *reply, TbError *err);
extern TbStatus tb_op_free(TbConn *conn, const TbJson *request, TbReply *reply, TbError *err);
extern void tb_loads_close(TbConn *conn);

/* request.c: members of requests */
extern TbStatus tb_request_missing(const char *member, TbError *err);
extern TbStatus tb_request_stream(const TbJson *request, uint64_t *stream,
								  TbError *err) TB_MUST_CHECK;
extern TbStatus tb_request_source(const TbJson *object, TbSourceSpec *source,
								  TbError *err) TB_MUST_CHECK;
/* owns: *sources is the caller's, tb_free. */
extern TbStatus tb_request_sources(const TbJson *request, TbSourceSpec **sources, int *n,
								   TbError *err) TB_MUST_CHECK;
extern TbStatus tb_request_open(const TbJson *request, TbStreamSpec *spec,
								TbError *err) TB_MUST_CHECK;
extern TbStatus tb_request_load(const TbJson *request, TbDeliverySpec *spec,
								TbError *err) TB_MUST_CHECK;
/* Overwrite user names and passwords in a request that is done. */
extern void tb_request_wipe(const TbJson *request);

#endif
