// Fills operands with random numbers and looks for results that nobody wrote. Compiled by NVRTC, without any header.

typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u64 mixed(u64 x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// Independent numbers of mean 0 and variance 1, as activations after a norm have: sums of four uniform ones.
extern "C" __global__ void fill_random(bf16 *to, u64 elements, u64 seed)
{
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < elements; i += (u64)gridDim.x * blockDim.x) {
        u64 bits = mixed(mixed(seed) + i);
        float sum = 0;
        for (int n = 0; n < 4; n++) sum += (float)((bits >> (16 * n)) & 0xffffu) * (1.0f / 65536.0f) - 0.5f;
        u32 word = __float_as_uint(sum * 1.7320508f);
        to[i] = (bf16)((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
    }
}

// Adds the number of elements that are not numbers. A word of 0xffffffff is not a number in f32, nor are its halves in bf16.
extern "C" __global__ void count_nan(const void *from, u64 elements, u32 bytes, u64 *count)
{
    u64 found = 0;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < elements; i += (u64)gridDim.x * blockDim.x) {
        u32 word = bytes == 4 ? ((const u32 *)from)[i] : (u32)((const bf16 *)from)[i] << 16;
        found += (word & 0x7fffffffu) > 0x7f800000u;
    }
    if (found) atomicAdd(count, found);
}
