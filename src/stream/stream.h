/*
 * Streams: running deliveries of a dataset into a ring of slots, and the messages between
 * backends, clients and the streamer. The message format is docs/internals/stream-protocol.md.
 */
#ifndef TB_STREAM_H
#define TB_STREAM_H

#include "base/base.h"
#include "block/block.h"
#include "dataset/dataset.h"
#include "stream/hub.h"

/* ---- wire: frames of 4 bytes length (little-endian) and that many bytes of JSON, on a Unix stream socket.
 * A descriptor may ride on the first byte of a frame. ----
 */
#define TB_WIRE_MAX_FRAME (16u << 20)

typedef struct TbWire TbWire;	/* one non-blocking connection */
/* Takes over the socket. */
extern TbStatus tb_wire_new(int socket, TbWire **wire, TbError *err) TB_MUST_CHECK;
extern void tb_wire_free(TbWire *wire);	/* closes the socket and descriptors not taken */
extern int	tb_wire_fd(const TbWire *wire);
/* Queue a frame; fd -1: none, else passed along (duplicated, the caller keeps its own). */
extern TbStatus tb_wire_send(TbWire *wire, const char *json, size_t len, int fd,
							 TbError *err) TB_MUST_CHECK;
/*
 * Write what is queued: OK when nothing is left, AGAIN when the socket is full, LOST when it is
 * gone.
 */
extern TbStatus tb_wire_flush(TbWire *wire, TbError *err) TB_MUST_CHECK;
/*
 * Next whole frame: OK with *doc (caller's) and *fd (-1: none; caller's), AGAIN, LOST at end of
 * file, PROTOCOL.
 */
extern TbStatus tb_wire_receive(TbWire *wire, TbJson **doc, int *fd, TbError *err) TB_MUST_CHECK;
extern bool tb_wire_wants_write(const TbWire *wire);
extern void tb_wire_limit(TbWire *wire, size_t bytes);	/* frames longer than this are PROTOCOL; at most the maximum */

/* A TbError as a JSON object and back: how errors cross the socket. */
extern TbStatus tb_error_to_json(const TbError *error, TbBuf *out) TB_MUST_CHECK;
extern void tb_error_from_json(const TbJson *object, TbError *error);

/*
 * ---- the state text that comes with every batch ----
 * {"dataset":hash,"seed":..,"epoch":..,"shuffle":"full","position":..,"done":..}
 * position: samples of the epoch handed out over all ranks; equal on all ranks.
 */
typedef struct TbStreamState
{
	char		dataset[65];
	uint64_t	seed;
	uint64_t	epoch;
	TbShuffle	shuffle;
	uint64_t	position;
	uint64_t	batches;		/* global batches done in this epoch's current run */
} TbStreamState;
extern TbStatus tb_state_print(const TbStreamState *state, char *text,
							   size_t text_bytes) TB_MUST_CHECK;
extern TbStatus tb_state_parse(const char *text, TbStreamState *state, TbError *err) TB_MUST_CHECK;

/*
 * ---- handles: "stream.slot.tensor.generation@epoch" in text, hexadecimal; the epoch is the
 * streamer's random 128 bits ----
 */
typedef struct TbHandle
{
	uint8_t		epoch[16];
	uint64_t	stream;
	uint32_t	slot;
	uint32_t	tensor;			/* column in the batch */
	uint64_t	generation;
} TbHandle;
#define TB_HANDLE_TEXT 96
extern void tb_handle_print(const TbHandle *handle, char text[TB_HANDLE_TEXT]);
extern TbStatus tb_handle_parse(const char *text, TbHandle *handle, TbError *err) TB_MUST_CHECK;
extern TbStatus tb_handle_fail(TbError *err);	/* the one error of every bad handle */

#endif
