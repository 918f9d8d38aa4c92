/*
 * Packed elements to values: missing ones become NaN, then scale and offset, in the decoded type,
 * each operation rounded on its own as NumPy does (no fused multiply-add). The one decode routine
 * for values: read, streams and coordinates come through here. source: semantics 1 and 2; xarray's
 * CFMaskCoder, CFScaleOffsetCoder.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "fp-contract=off")
#else
#pragma STDC FP_CONTRACT OFF
#endif

#include "block/internal.h"

#include <math.h>
#include <string.h>

#define UNALIGNED __attribute__((aligned(1), may_alias))
typedef int8_t vi8 UNALIGNED;
typedef int16_t vi16 UNALIGNED;
typedef int32_t vi32 UNALIGNED;
typedef int64_t vi64 UNALIGNED;
typedef uint8_t vu8 UNALIGNED;
typedef uint16_t vu16 UNALIGNED;
typedef uint32_t vu32 UNALIGNED;
typedef uint64_t vu64 UNALIGNED;
typedef float vf32 UNALIGNED;
typedef double vf64 UNALIGNED;

#define HALF_NAN 0x7e00

/* Adding -0.0 changes no number, adding 0.0 would turn -0.0 into 0.0: that is what "no offset" must
 * be. */
static double
offset_of(const TbPacking *packing)
{
	return packing->scaled && packing->offset != 0.0 ? packing->offset : -0.0;
}

static double
scale_of(const TbPacking *packing)
{
	return packing->scaled ? packing->scale : 1.0;
}

/*
 * One loop a pair of types: P packed, B its bits, V and D how the decoded type is written and
 * computed. LOAD gives the number of an element. One sentinel or none are the common cases and
 * vectorise.
 */
#define UNPACK_LOOP(name, P, B, V, D, LOAD) \
static void \
name(const TbPacking *packing, const void *src, size_t n, void *dst) \
{ \
	const P	   *in = src; \
	const B	   *bits = src; \
	V		   *out = dst; \
	const D		scale = (D) scale_of(packing); \
	const D		offset = (D) offset_of(packing); \
	const D		nan_value = (D) NAN; \
	if (packing->n_sentinels == 1) \
	{ \
		const B		sentinel = (B) packing->sentinel[0]; \
		for (size_t i = 0; i < n; i++) \
		{ \
			D			v = (D) LOAD(in[i]) * scale; \
			v = v + offset; \
			out[i] = bits[i] == sentinel ? nan_value : v; \
		} \
		return; \
	} \
	for (size_t i = 0; i < n; i++) \
	{ \
		D			v = (D) LOAD(in[i]) * scale; \
		out[i] = v + offset; \
	} \
	for (int s = 0; s < packing->n_sentinels; s++) \
	{ \
		const B		sentinel = (B) packing->sentinel[s]; \
		for (size_t i = 0; i < n; i++) \
			out[i] = bits[i] == sentinel ? nan_value : out[i]; \
	} \
}

#define PLAIN(x) (x)
#define TRUTH(x) ((x) != 0)

#define UNPACK_BOTH(name, P, B, LOAD) \
	UNPACK_LOOP(name##_f32, P, B, vf32, float, LOAD) \
	UNPACK_LOOP(name##_f64, P, B, vf64, double, LOAD)

UNPACK_BOTH(bool, vu8, vu8, TRUTH)
UNPACK_BOTH(i8, vi8, vu8, PLAIN)
UNPACK_BOTH(i16, vi16, vu16, PLAIN)
UNPACK_BOTH(i32, vi32, vu32, PLAIN)
UNPACK_BOTH(i64, vi64, vu64, PLAIN)
UNPACK_BOTH(u8, vu8, vu8, PLAIN)
UNPACK_BOTH(u16, vu16, vu16, PLAIN)
UNPACK_BOTH(u32, vu32, vu32, PLAIN)
UNPACK_BOTH(u64, vu64, vu64, PLAIN)
UNPACK_BOTH(f16, vu16, vu16, tb_half_to_float)
UNPACK_BOTH(f32, vf32, vu32, PLAIN)
UNPACK_BOTH(f64, vf64, vu64, PLAIN)

/* Masking alone, same type: bits are moved, so NaN payloads and signs of zero survive. */
#define MASK_LOOP(name, B, nan_bits) \
static void \
name(const TbPacking *packing, const void *src, size_t n, void *dst) \
{ \
	const B	   *in = src; \
	B		   *out = dst; \
	const B		first = (B) packing->sentinel[0]; \
	for (size_t i = 0; i < n; i++) \
		out[i] = in[i] == first ? (B) (nan_bits) : in[i]; \
	for (int s = 1; s < packing->n_sentinels; s++) \
	{ \
		const B		sentinel = (B) packing->sentinel[s]; \
		for (size_t i = 0; i < n; i++) \
			out[i] = in[i] == sentinel ? (B) (nan_bits) : out[i]; \
	} \
}

MASK_LOOP(mask_f16, vu16, HALF_NAN)
MASK_LOOP(mask_f32, vu32, UINT32_C(0x7fc00000))
MASK_LOOP(mask_f64, vu64, UINT64_C(0x7ff8000000000000))

/* Scaled half precision: computed in float32 and rounded after each operation. */
static void
f16_f16(const TbPacking *packing, const void *src, size_t n, void *dst)
{
	const vu16 *in = src;
	vu16	   *out = dst;
	float		scale = tb_half_to_float(tb_float_to_half((float) scale_of(packing)));
	float		offset = tb_half_to_float(tb_float_to_half((float) offset_of(packing)));

	for (size_t i = 0; i < n; i++)
	{
		uint16_t	bits = in[i];
		uint16_t	half = tb_float_to_half(tb_half_to_float(bits) * scale);

		half = tb_float_to_half(tb_half_to_float(half) + offset);
		for (int s = 0; s < packing->n_sentinels; s++)
			if (bits == (uint16_t) packing->sentinel[s])
				half = HALF_NAN;
		out[i] = half;
	}
}

static TbUnpackLoop
loop_to_float(TbDtype packed, bool wide)
{
	switch (packed)
	{
		case TB_BOOL:
			return wide ? bool_f64 : bool_f32;
		case TB_I8:
			return wide ? i8_f64 : i8_f32;
		case TB_I16:
			return wide ? i16_f64 : i16_f32;
		case TB_I32:
			return wide ? i32_f64 : i32_f32;
		case TB_I64:
			return wide ? i64_f64 : i64_f32;
		case TB_U8:
			return wide ? u8_f64 : u8_f32;
		case TB_U16:
			return wide ? u16_f64 : u16_f32;
		case TB_U32:
			return wide ? u32_f64 : u32_f32;
		case TB_U64:
			return wide ? u64_f64 : u64_f32;
		case TB_F16:
			return wide ? f16_f64 : f16_f32;
		case TB_F32:
			return wide ? f32_f64 : f32_f32;
		case TB_F64:
			return wide ? f64_f64 : f64_f32;
		case TB_NONE:
			break;
	}
	return NULL;
}

/* The loop from packed to decoded elements; *copy where they are the same bytes. NULL and no copy:
 * there is none. */
static TbUnpackLoop
choose_loop(const TbPacking *packing, bool *copy)
{
	TbDtype		decoded = packing->decoded;

	*copy = packing->packed == decoded && packing->n_sentinels == 0 && !packing->scaled;
	if (*copy)
		return NULL;
	if (packing->packed == decoded && !packing->scaled)
	{
		if (decoded == TB_F64)
			return mask_f64;
		if (decoded == TB_F32)
			return mask_f32;
		if (decoded == TB_F16)
			return mask_f16;
	}
	if (decoded == TB_F64 || decoded == TB_F32)
		return loop_to_float(packing->packed, decoded == TB_F64);
	return decoded == TB_F16 && packing->packed == TB_F16 ? f16_f16 : NULL;
}

TbStatus
tb_unpacker_init(TbUnpacker *unpacker, const TbPacking *packing, TbTreatment treatment,
				 TbError *err)
{
	bool		copy = true;

	unpacker->packing = packing;
	unpacker->loop = treatment.raw ? NULL : choose_loop(packing, &copy);
	unpacker->from = treatment.raw ? packing->stored : packing->decoded;
	unpacker->to = treatment.cast != TB_NONE ? treatment.cast : unpacker->from;
	unpacker->src_bytes = tb_dtype_size(packing->packed);
	unpacker->dst_bytes = tb_dtype_size(unpacker->to);
	unpacker->plain = copy && unpacker->to == unpacker->from;
	if (copy || unpacker->loop != NULL)
		return TB_OK;
	tb_fail(err, TB_E_UNSUPPORTED, "packed values of this type cannot be decoded");
	tb_error_detail(err, "from %s to %s", tb_dtype_name(packing->packed),
					tb_dtype_name(packing->decoded));
	return TB_E_UNSUPPORTED;
}

TbStatus
tb_unpacker_run(const TbUnpacker *unpacker, const void *src, size_t n, void *dst, TbError *err)
{
	const uint8_t *in = src;
	uint8_t    *out = dst;
	uint64_t	decoded[512];
	const size_t step = sizeof(decoded) / sizeof(decoded[0]);

	if (unpacker->plain)
	{
		memcpy(dst, src, n * unpacker->src_bytes);
		return TB_OK;
	}
	if (unpacker->to == unpacker->from)
	{
		unpacker->loop(unpacker->packing, src, n, dst);
		return TB_OK;
	}
	if (unpacker->loop == NULL)
		return tb_cast(unpacker->from, src, unpacker->to, dst, n, err);
	for (size_t at = 0; at < n; at += step)
	{
		size_t		run = n - at < step ? n - at : step;
		TbStatus	status;

		unpacker->loop(unpacker->packing, in + at * unpacker->src_bytes, run, decoded);
		status = tb_cast(unpacker->from, decoded, unpacker->to, out + at * unpacker->dst_bytes, run,
						 err);
		if (status != TB_OK)
			return status;
	}
	return TB_OK;
}

TbStatus
tb_unpack(const TbPacking *packing, TbTreatment treatment, const void *packed, size_t elements,
		  void *dst, TbError *err)
{
	TbUnpacker	unpacker;
	TbStatus	status = tb_unpacker_init(&unpacker, packing, treatment, err);

	return status == TB_OK ? tb_unpacker_run(&unpacker, packed, elements, dst, err) : status;
}
