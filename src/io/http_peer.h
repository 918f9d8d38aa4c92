/*
 * Which addresses a network store may lead to, pure: judged by the address that a socket is about to be opened
 * to, never by a name, so that a name which changes its address leads nowhere else.
 *
 *   public addresses                   always
 *   loopback and private ones          where the store's url names the address, or "localhost"
 *   link-local ones (the metadata services of clouds), unspecified, multicast: not by that
 *   all of these                       where allowed_hosts names the url's host or a network of theirs
 */
#ifndef TB_IO_HTTP_PEER_H
#define TB_IO_HTTP_PEER_H

#include <sys/socket.h>

#include "io/store.h"

typedef struct TbPeers TbPeers;

/* url: http(s), of the server that is connected to. errors: INVALID (allowed_hosts), NOMEM. */
extern TbStatus tb_peers_new(const char *url, const TbStoreSpec *spec, TbPeers **peers, TbError *err) TB_MUST_CHECK;
extern void tb_peers_free(TbPeers *peers);	/* NULL allowed */
extern bool tb_peers_allow(const TbPeers *peers, const struct sockaddr *address, socklen_t len);
/* As above, of an address in text. */
extern bool tb_peers_allow_text(const TbPeers *peers, const char *address);

/* A hash over the rules: equal only for equal ones. */
extern void tb_peers_hash(const TbPeers *peers, uint8_t hash[32]);

/* The port of our end of an open socket; 0: not known. */
extern int	tb_peer_own_port(int fd);

#endif
