/*
 * Who is at the other end of this session's connection? A file of its own for its include: libpq-be.h wants the
 * headers of Kerberos where the server has GSSAPI, of which nothing is used here. Without ENABLE_GSS the
 * struct has the same layout: the server promises that to extensions.
 */
#include "postgres.h"

#undef ENABLE_GSS
#undef ENABLE_SSPI

#include <sys/socket.h>

#include "libpq/libpq-be.h"
#include "miscadmin.h"

#include "pg/stream_open.h"

int64
tbpg_peer_uid(void)
{
	struct
	{
		pid_t		pid;
		uid_t		uid;
		gid_t		gid;
	}			peer;			/* struct ucred, which only _GNU_SOURCE shows */
	socklen_t	len = sizeof(peer);

	if (MyProcPort == NULL || MyProcPort->laddr.addr.ss_family != AF_UNIX ||
		getsockopt(MyProcPort->sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
		return -1;
	return (int64) peer.uid;
}
