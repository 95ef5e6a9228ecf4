/* The kernels of ranks on devices: reductions to the bit as lockstep_core::reduce, and work.
 *
 * Compiled by NVRTC when a rank starts, without any header, and written in what C and CUDA have in
 * common, so that the tests compile the same text for the CPU and hold it against core.
 * Every kernel takes (into, a, b, count, parameter) and walks its elements in a grid-wide stride.
 */
#ifndef KERNEL
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
#endif

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef long long i64;
typedef int i32;
typedef short i16;
typedef signed char i8;

#define EACH(i, count)                                                                            \
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (count);                         \
         i += (u64)gridDim.x * blockDim.x)

/* The NaN of an operation: the first operand's, else the second's, else x86's default. */
DEVICE int nan32(u32 bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }
DEVICE float settle32(float a, float b, float result) {
    if (!nan32(__float_as_uint(result))) return result;
    if (nan32(__float_as_uint(a))) return __uint_as_float(__float_as_uint(a) | 0x400000u);
    if (nan32(__float_as_uint(b))) return __uint_as_float(__float_as_uint(b) | 0x400000u);
    return __uint_as_float(0xffc00000u);
}
DEVICE int nan64(u64 bits) { return (bits & 0x7fffffffffffffffull) > 0x7ff0000000000000ull; }
DEVICE double settle64(double a, double b, double result) {
    u64 quiet = 0x8000000000000ull;
    if (!nan64((u64)__double_as_longlong(result))) return result;
    if (nan64((u64)__double_as_longlong(a)))
        return __longlong_as_double((i64)((u64)__double_as_longlong(a) | quiet));
    if (nan64((u64)__double_as_longlong(b)))
        return __longlong_as_double((i64)((u64)__double_as_longlong(b) | quiet));
    return __longlong_as_double((i64)0xfff8000000000000ull);
}

/* float32 and its parts: each format widens exactly and narrows to the nearest, ties to even. */
DEVICE float widen_f32(float a) { return a; }
DEVICE float narrow_f32(float a) { return a; }

DEVICE float widen_bf16(u16 a) { return __uint_as_float((u32)a << 16); }
DEVICE u16 narrow_bf16(float value) {
    u32 bits = __float_as_uint(value);
    if (nan32(bits)) return (u16)((bits >> 16) | 0x40u);
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

DEVICE float widen_f16(u16 a) {
    u32 sign = ((u32)a & 0x8000u) << 16, exponent = ((u32)a >> 10) & 31u, mantissa = a & 0x3ffu;
    if (exponent == 31u)
        return __uint_as_float(sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u));
    if (exponent == 0u) {
        float value = (float)mantissa * 5.9604644775390625e-8f; /* 2^-24; exact */
        return __uint_as_float(sign | __float_as_uint(value));
    }
    return __uint_as_float(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}
DEVICE u16 narrow_f16(float value) {
    u32 bits = __float_as_uint(value), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
    u32 kept, gone, half, shift, exponent;
    if (rest > 0x7f800000u) return (u16)(sign | 0x7e00u | ((rest >> 13) & 0x3ffu));
    if (rest >= 0x47800000u) return (u16)(sign | 0x7c00u); /* 65536 and above */
    exponent = rest >> 23;
    if (exponent >= 113u) {
        kept = rest - (112u << 23);
        return (u16)(sign | ((kept + 0xfffu + ((kept >> 13) & 1u)) >> 13));
    }
    shift = 126u - exponent; /* of a significand of 24 bits, for a unit of 2^-24 */
    if (exponent == 0u || shift > 24u) return (u16)sign;
    kept = 0x800000u | (rest & 0x7fffffu);
    half = 1u << (shift - 1u);
    gone = kept & ((half << 1) - 1u);
    kept >>= shift;
    if (gone > half || (gone == half && (kept & 1u))) kept += 1u;
    return (u16)(sign | kept);
}

/* The two 8-bit floats, combined as halves and saturating, as NCCL does it. */
DEVICE float widen_f8(u8 code, int mantissa_bits, int bias, u32 largest, u32 beyond) {
    u32 sign = ((u32)code & 0x80u) << 24, magnitude = code & 0x7fu, exponent, mantissa;
    if (magnitude > largest)
        return __uint_as_float(sign | (magnitude == beyond && beyond != 0x7fu ? 0x7f800000u : 0x7fc00000u));
    exponent = magnitude >> mantissa_bits;
    mantissa = magnitude & ((1u << mantissa_bits) - 1u);
    if (exponent == 0u) {
        float unit = __uint_as_float((u32)(1 - bias - mantissa_bits + 127) << 23);
        return __uint_as_float(sign | __float_as_uint((float)mantissa * unit));
    }
    return __uint_as_float(sign | ((exponent + 127u - (u32)bias) << 23)
                           | (mantissa << (23 - mantissa_bits)));
}
DEVICE u8 nearest_f8(float value, int mantissa_bits, int bias, u32 largest) {
    u32 bits = __float_as_uint(value), sign = (bits >> 24) & 0x80u, significand, kept, rest, half, magnitude;
    int exponent = (int)((bits >> 23) & 0xffu) - 127, smallest = 1 - bias, below, gone;
    if (nan32(bits)) return (u8)(sign | 0x7fu);
    significand = 0x800000u | (bits & 0x7fffffu);
    below = smallest - exponent;
    below = below < 0 ? 0 : below > 25 ? 25 : below;
    gone = 23 - mantissa_bits + below;
    gone = gone > 25 ? 25 : gone;
    kept = significand >> gone;
    half = 1u << (gone - 1);
    rest = significand & ((half << 1) - 1u);
    if (rest > half || (rest == half && (kept & 1u))) kept += 1u;
    magnitude = ((u32)(exponent > smallest ? exponent - smallest : 0) << mantissa_bits) + kept;
    return (u8)(sign | (magnitude <= largest ? magnitude : largest));
}
DEVICE float widen_e4m3(u8 a) { return widen_f8(a, 3, 7, 0x7e, 0x7f); }
DEVICE u8 narrow_e4m3(float a) { return nearest_f8(widen_f16(narrow_f16(a)), 3, 7, 0x7e); }
DEVICE u8 factor_e4m3(float a) { return nearest_f8(a, 3, 7, 0x7e); }
DEVICE float widen_e5m2(u8 a) { return widen_f8(a, 2, 15, 0x7b, 0x7c); }
DEVICE u8 narrow_e5m2(float a) { return nearest_f8(widen_f16(narrow_f16(a)), 2, 15, 0x7b); }
DEVICE u8 factor_e5m2(float a) { return nearest_f8(a, 2, 15, 0x7b); }

/* into[i] = a[i] op b[i] */
#define PAIRS(name, type, expression)                                                             \
    KERNEL name(u64 into, u64 first, u64 second, u64 count, u64 parameter) {                      \
        type *out = (type *)into;                                                                 \
        const type *x = (const type *)first;                                                      \
        const type *y = (const type *)second;                                                     \
        (void)parameter;                                                                          \
        EACH(i, count) {                                                                          \
            type a = x[i], b = y[i];                                                              \
            out[i] = (expression);                                                                \
        }                                                                                         \
    }

#define INTEGER(name, type, wide)                                                                 \
    PAIRS(name##_sum, type, (type)((wide)a + (wide)b))                                            \
    PAIRS(name##_product, type, (type)((wide)a * (wide)b))                                        \
    PAIRS(name##_min, type, a < b ? a : b)                                                        \
    PAIRS(name##_max, type, a > b ? a : b)                                                        \
    PAIRS(name##_band, type, (type)(a & b))                                                       \
    PAIRS(name##_bor, type, (type)(a | b))                                                        \
    PAIRS(name##_bxor, type, (type)(a ^ b))                                                       \
    KERNEL name##_divide(u64 into, u64 first, u64 second, u64 count, u64 parameter) {             \
        type *out = (type *)into;                                                                 \
        const type *x = (const type *)first;                                                      \
        (void)second;                                                                             \
        EACH(i, count) out[i] = (type)((i64)x[i] / (i64)parameter);                               \
    }
INTEGER(int64, i64, u64)
INTEGER(int32, i32, u32)
INTEGER(int16, i16, u32)
INTEGER(int8, i8, u32)
INTEGER(uint8, u8, u32)

/* Booleans are logic: SUM is "any", PRODUCT "all". */
PAIRS(bool_bor, u8, (u8)(a | b))
PAIRS(bool_band, u8, (u8)(a & b))
PAIRS(bool_bxor, u8, (u8)(a ^ b))

#define FLOAT(name, type, widen, narrow, factor)                                                  \
    PAIRS(name##_sum, type, narrow(settle32(widen(a), widen(b), widen(a) + widen(b))))            \
    PAIRS(name##_product, type, narrow(settle32(widen(a), widen(b), widen(a) * widen(b))))        \
    PAIRS(name##_min, type, widen(b) < widen(a) ? b : a)                                          \
    PAIRS(name##_max, type, widen(b) > widen(a) ? b : a)                                          \
    KERNEL name##_premultiply(u64 into, u64 first, u64 second, u64 count, u64 parameter) {        \
        type *out = (type *)into;                                                                 \
        const type *x = (const type *)first;                                                      \
        float by = widen(factor((float)__longlong_as_double((i64)parameter)));                    \
        (void)second;                                                                             \
        EACH(i, count) {                                                                          \
            float a = widen(x[i]);                                                                \
            out[i] = narrow(settle32(a, by, a * by));                                             \
        }                                                                                         \
    }
FLOAT(float32, float, widen_f32, narrow_f32, narrow_f32)
FLOAT(float16, u16, widen_f16, narrow_f16, narrow_f16)
FLOAT(bfloat16, u16, widen_bf16, narrow_bf16, narrow_bf16)
FLOAT(float8_e4m3fn, u8, widen_e4m3, narrow_e4m3, factor_e4m3)
FLOAT(float8_e5m2, u8, widen_e5m2, narrow_e5m2, factor_e5m2)

PAIRS(float64_sum, double, settle64(a, b, a + b))
PAIRS(float64_product, double, settle64(a, b, a * b))
PAIRS(float64_min, double, b < a ? b : a)
PAIRS(float64_max, double, b > a ? b : a)
KERNEL float64_premultiply(u64 into, u64 first, u64 second, u64 count, u64 parameter) {
    double *out = (double *)into;
    const double *x = (const double *)first;
    double by = __longlong_as_double((i64)parameter);
    (void)second;
    EACH(i, count) out[i] = settle64(x[i], by, x[i] * by);
}

/* Work: `parameter` multiply-adds in every thread, two floating-point operations each. What they
 * give is kept only if it is what it never is, so that no compiler leaves them out. */
KERNEL compute(u64 into, u64 first, u64 second, u64 count, u64 parameter) {
    float x = 1.0f + (float)threadIdx.x;
    u64 i;
    (void)first;
    (void)second;
    (void)count;
    for (i = 0; i < parameter; i++) x = x * 0.999f + 0.001f;
    if (x == -1.0f) *(float *)into = x;
}
