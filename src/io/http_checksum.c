/*
 * The CRC of 64 bits by eight tables at once, the rest by what is at hand.
 */
#include "io/http_checksum.h"

#include <openssl/evp.h>
#include <string.h>
#include <zlib.h>

#define CRC64NVME UINT64_C(0x9a6c9329ac4bc9b5)	/* bit-reversed */
#define ZLIB_STEP ((size_t) 1 << 30)

static const char *const names[TB_CHECKSUMS] = {
	[TB_CHECKSUM_CRC32] = "x-amz-checksum-crc32",
	[TB_CHECKSUM_CRC32C] = "x-amz-checksum-crc32c",
	[TB_CHECKSUM_CRC64NVME] = "x-amz-checksum-crc64nvme",
	[TB_CHECKSUM_SHA256] = "x-amz-checksum-sha256",
	[TB_CHECKSUM_MD5] = "content-md5",
};

static void
make_tables(uint64_t table[8][256])
{
	for (int i = 0; i < 256; i++)
	{
		uint64_t	crc = (uint64_t) i;

		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (crc & 1 ? CRC64NVME : 0);
		table[0][i] = crc;
	}
	for (int k = 1; k < 8; k++)
		for (int i = 0; i < 256; i++)
			table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 255];
}

static uint64_t
crc64(const uint8_t *bytes, size_t len)
{
	uint64_t	table[8][256];
	uint64_t	crc = UINT64_MAX;

	make_tables(table);
	for (; len >= 8; bytes += 8, len -= 8)
	{
		for (int i = 0; i < 8; i++)
			crc ^= (uint64_t) bytes[i] << 8 * i;
		crc = table[7][crc & 255] ^ table[6][crc >> 8 & 255] ^ table[5][crc >> 16 & 255] ^ table[4][crc >> 24 & 255] ^
			table[3][crc >> 32 & 255] ^ table[2][crc >> 40 & 255] ^ table[1][crc >> 48 & 255] ^ table[0][crc >> 56];
	}
	for (; len > 0; bytes++, len--)
		crc = (crc >> 8) ^ table[0][(crc ^ *bytes) & 255];
	return ~crc;
}

static uint64_t
zlib_crc(const uint8_t *bytes, size_t len)
{
	uLong		crc = crc32(0, NULL, 0);

	while (len > 0)
	{
		size_t		n = len < ZLIB_STEP ? len : ZLIB_STEP;

		crc = crc32(crc, bytes, (uInt) n);
		bytes += n;
		len -= n;
	}
	return crc;
}

bool
tb_checksum(TbChecksum kind, const void *bytes, size_t len, char text[48])
{
	uint8_t		sum[EVP_MAX_MD_SIZE];
	unsigned int n = kind == TB_CHECKSUM_CRC64NVME ? 8 : 4;
	uint64_t	crc = 0;

	if (kind == TB_CHECKSUM_SHA256 || kind == TB_CHECKSUM_MD5)
	{
		const EVP_MD *digest = kind == TB_CHECKSUM_MD5 ? EVP_md5() : EVP_sha256();

		if (EVP_Digest(len > 0 ? bytes : (const void *) "", len, sum, &n, digest, NULL) != 1)
			return false;
	}
	else
	{
		if (kind == TB_CHECKSUM_CRC32)
			crc = zlib_crc(bytes, len);
		else if (kind == TB_CHECKSUM_CRC32C)
			crc = tb_crc32c(0, bytes, len);
		else
			crc = crc64(bytes, len);
		for (unsigned int i = 0; i < n; i++)
			sum[i] = (uint8_t) (crc >> 8 * (n - 1 - i));
	}
	(void) EVP_EncodeBlock((unsigned char *) text, sum, (int) n);	/* at most 44 characters and a NUL */
	return true;
}

static size_t
encoded_length(int kind)
{
	static const size_t bytes[TB_CHECKSUMS] = {4, 4, 8, 32, 16};

	return (bytes[kind] + 2) / 3 * 4;
}

bool
tb_checksum_agrees(const TbHttpHead *head, const void *bytes, size_t len, const char **which)
{
	for (int kind = 0; kind < TB_CHECKSUMS; kind++)
	{
		const char *told = head->checksum[kind];
		char		text[48];

		if (strlen(told) != encoded_length(kind) || strchr(told, '-') != NULL ||
			!tb_checksum((TbChecksum) kind, bytes, len, text))
			continue;
		if (strcmp(told, text) != 0)
		{
			*which = names[kind];
			return false;
		}
	}
	return true;
}
