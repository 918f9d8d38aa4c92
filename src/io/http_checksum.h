/*
 * Checksums that a server sends along with a whole body, pure.
 */
#ifndef TB_IO_HTTP_CHECKSUM_H
#define TB_IO_HTTP_CHECKSUM_H

#include "io/http_head.h"

/* The checksum of bytes in base64, as headers have it. false: memory is gone. */
extern bool tb_checksum(TbChecksum kind, const void *bytes, size_t len, char text[48]);
/* Whether a body agrees with all the checksums of its head. Those of parts ("...-3") and malformed ones are
 * passed over. *which: the header that disagrees. */
extern bool tb_checksum_agrees(const TbHttpHead *head, const void *bytes, size_t len, const char **which);

#endif
