/* Hashes: SHA-256 over OpenSSL's EVP, a 64-bit mix by hand, random bytes from the kernel. */
#include "base/hash.h"
#include "base/mem.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/random.h>

struct TbSha256
{
	EVP_MD_CTX *context;		/* owned */
	bool		failed;
};

/* owns: the caller, until tb_sha256_finish. NULL when memory is gone. */
TbSha256 *
tb_sha256_new(void)
{
	TbSha256   *sha = tb_calloc(1, sizeof(*sha));

	if (sha == NULL)
		return NULL;
	sha->context = EVP_MD_CTX_new();
	if (sha->context == NULL || EVP_DigestInit_ex(sha->context, EVP_sha256(), NULL) != 1)
	{
		EVP_MD_CTX_free(sha->context);
		tb_free(sha);
		return NULL;
	}
	return sha;
}

void
tb_sha256_add(TbSha256 *sha, const void *bytes, size_t len)
{
	if (EVP_DigestUpdate(sha->context, bytes, len) != 1)
		sha->failed = true;
}

/*
 * Lower-case hex of all that was added; the empty text, which is no digest, if OpenSSL refused.
 * Frees sha.
 */
void
tb_sha256_finish(TbSha256 *sha, char hex[65])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int len = 0;

	if (EVP_DigestFinal_ex(sha->context, digest, &len) != 1 || len != 32 || sha->failed)
		len = 0;
	for (unsigned int i = 0; i < len; i++)
	{
		hex[2 * i] = digits[digest[i] >> 4];
		hex[2 * i + 1] = digits[digest[i] & 15];
	}
	hex[2 * (size_t) len] = '\0';
	EVP_MD_CTX_free(sha->context);
	tb_free(sha);
}

/* source: Vigna, splitmix64.c (public domain), the output function. */
uint64_t
tb_mix64(uint64_t value)
{
	value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
	return value ^ (value >> 31);
}

/* Up to eight bytes, the first lowest on every machine: a hash may be stored. */
static uint64_t
load_little(const uint8_t *bytes, size_t n)
{
	uint64_t	word = 0;

	for (size_t i = 0; i < n; i++)
		word |= (uint64_t) bytes[i] << (8 * i);
	return word;
}

/* Not for secrets: whoever knows the seed can make collisions. */
uint64_t
tb_hash64(const void *bytes, size_t len, uint64_t seed)
{
	const uint8_t *at = bytes;
	uint64_t	hash = tb_mix64(seed + UINT64_C(0x9e3779b97f4a7c15)) ^ len;

	for (; len >= 8; at += 8, len -= 8)
		hash = tb_mix64(hash ^ load_little(at, 8)) + UINT64_C(0x9e3779b97f4a7c15);
	return tb_mix64(hash ^ load_little(at, len));
}

TbStatus
tb_random(void *bytes, size_t len, TbError *err)
{
	uint8_t    *at = bytes;

	while (len > 0)
	{
		ssize_t		got = getrandom(at, len, 0);

		if (got < 0)
		{
			int			saved = errno;

			if (saved == EINTR)
				continue;
			(void) tb_fail_errno(err, saved, "read random bytes", NULL);
			if (err != NULL)
				err->code = TB_E_IO;
			return TB_E_IO;
		}
		at += got;
		len -= (size_t) got;
	}
	return TB_OK;
}

bool
tb_equal_secret(const void *a, const void *b, size_t len)
{
	return CRYPTO_memcmp(a, b, len) == 0;
}
