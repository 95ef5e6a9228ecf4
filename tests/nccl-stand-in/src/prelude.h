/* What makes a kernel of CUDA's C a function of C's: put before the text by the stand-in's NVRTC. */
#define KERNEL void
#define DEVICE static inline
typedef struct { unsigned x, y, z; } stand_in_dim;
static __thread stand_in_dim threadIdx, blockIdx, blockDim, gridDim;
static inline unsigned __float_as_uint(float f) { unsigned u; __builtin_memcpy(&u, &f, 4); return u; }
static inline float __uint_as_float(unsigned u) { float f; __builtin_memcpy(&f, &u, 4); return f; }
static inline long long __double_as_longlong(double f) { long long u; __builtin_memcpy(&u, &f, 8); return u; }
static inline double __longlong_as_double(long long u) { double f; __builtin_memcpy(&f, &u, 8); return f; }
void stand_in_index(unsigned block, unsigned thread, unsigned blocks, unsigned threads) {
    blockIdx.x = block; threadIdx.x = thread; gridDim.x = blocks; blockDim.x = threads;
}
