/*
 * SHA-256 (content addresses) and a 64-bit mix (keyed permutations, version stamps), over OpenSSL
 * and by hand.
 */
#ifndef TB_BASE_HASH_H
#define TB_BASE_HASH_H

#include "base/error.h"

typedef struct TbSha256 TbSha256;

extern TbSha256 *tb_sha256_new(void);
extern void tb_sha256_add(TbSha256 *sha, const void *bytes, size_t len);
extern void tb_sha256_finish(TbSha256 *sha, char hex[65]);	/* frees sha */

extern uint64_t tb_mix64(uint64_t value);	/* splitmix64's finaliser: a bijection */
extern uint64_t tb_hash64(const void *bytes, size_t len, uint64_t seed);

/* CRC-32C of bytes that follow those of `crc` (0 at the start), by hardware where there is any. _plain: without. */
extern uint32_t tb_crc32c(uint32_t crc, const void *bytes, size_t len);
extern uint32_t tb_crc32c_plain(uint32_t crc, const uint8_t *bytes, size_t len);
/* Another checksum of our own: CRC-32C over those of three equal parts and the rest. Three times as fast. */
extern uint32_t tb_crc32c_lanes(const void *bytes, size_t len);

/* Random bytes from the kernel. errors: IO. */
extern TbStatus tb_random(void *bytes, size_t len, TbError *err) TB_MUST_CHECK;

/* Compare without telling by time where they differ. */
extern bool tb_equal_secret(const void *a, const void *b, size_t len);

#endif
