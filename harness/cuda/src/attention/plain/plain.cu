// Attention in plain CUDA C: an independent check of cuDNN, and for cards without it. Compiled for one head_dim D (macro) by
// NVRTC, without any header. Threads are a square of 16 x 16; a block works on tiles of TILE rows by TILE keys.

typedef unsigned short bf16;
typedef unsigned int u32;
typedef long long i64;

// Words of two bf16 in a row of a head, and between rows in shared memory: odd, so that rows fall into different banks.
#define WORDS ((D + 1) / 2)
#define PITCH (WORDS | 1)
// Rows (or keys) of a tile that one thread owns, and words of a row.
#define OWN (TILE / 16)
#define OWN_WORDS ((WORDS + 15) / 16)
#define SCORE_PITCH (TILE + 1)
#define NOTHING __int_as_float(0xff800000)

// Fields of a slot: lengths, then bytes in the arena, then the first row of the slot among all rows of the call.
enum { Q_ROWS, K_ROWS, Q, K, V, O, LSE, D_O, DQ, DK, DV, FIRST, FIELDS };

// What all kernels are given. Strides are elements between rows.
struct Call {
    i64 arena;
    const i64 *slots;
    const int2 *tiles;
    float *delta;
    int q_heads, kv_heads;
    int q_stride, kv_stride, o_stride, lse_stride, d_o_stride, dq_stride, dkv_stride;
    // 0: all keys; 1: row i sees keys up to i; 2: the last row sees the last key.
    int mask;
    float scale;
};

__device__ __forceinline__ float low(u32 word) { return __uint_as_float(word << 16); }
__device__ __forceinline__ float high(u32 word) { return __uint_as_float(word & 0xffff0000u); }

__device__ __forceinline__ bf16 rounded(float value)
{
    u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
    return (bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Rows [first, first + TILE) of one head into shared memory; zeros behind the last row and column.
__device__ void load(u32 *tile, const bf16 *from, i64 stride, int first, int rows)
{
    for (int i = threadIdx.x; i < TILE * WORDS; i += 256) {
        int row = i / WORDS, word = i % WORDS;
        u32 value = 0;
        if (first + row < rows) {
            const bf16 *pair = from + (i64)(first + row) * stride + 2 * word;
#if D % 2 == 0
            // Operands start at multiples of 16 bytes, and rows and heads have an even number of elements.
            value = *(const u32 *)pair;
#else
            value = pair[0];
            if (2 * word + 1 < D) value |= (u32)pair[1] << 16;
#endif
        }
        tile[row * PITCH + word] = value;
    }
}

// One row of a head, from the words that this thread owns.
__device__ void store(bf16 *to, const float (*values)[2], float factor)
{
    int tx = threadIdx.x % 16;
    for (int w = 0; w < OWN_WORDS; w++) {
        int word = tx + 16 * w;
        if (2 * word < D) to[2 * word] = rounded(values[w][0] * factor);
        if (2 * word + 1 < D) to[2 * word + 1] = rounded(values[w][1] * factor);
    }
}

// Products of the thread's rows of a with its rows of b.
__device__ __forceinline__ void products(float (*s)[OWN], const u32 *a, const u32 *b)
{
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    for (int i = 0; i < OWN; i++)
        for (int j = 0; j < OWN; j++) s[i][j] = 0;
#pragma unroll 4
    for (int w = 0; w < WORDS; w++) {
        float a0[OWN], a1[OWN];
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            u32 word = a[(ty + 16 * i) * PITCH + w];
            a0[i] = low(word);
            a1[i] = high(word);
        }
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            u32 word = b[(tx + 16 * j) * PITCH + w];
            float b0 = low(word), b1 = high(word);
#pragma unroll
            for (int i = 0; i < OWN; i++) s[i][j] = fmaf(a1[i], b1, fmaf(a0[i], b0, s[i][j]));
        }
    }
}

// sums[i] += sum over n of weights[row i][n] * rows[n]; `across` is the distance between n and `along` between rows.
__device__ __forceinline__ void accumulate(float (*sums)[OWN_WORDS][2], const float *weights, int along, int across,
                                           const u32 *rows)
{
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll 4
    for (int n = 0; n < TILE; n++) {
        float p[OWN];
#pragma unroll
        for (int i = 0; i < OWN; i++) p[i] = weights[(ty + 16 * i) * along + n * across];
#pragma unroll
        for (int w = 0; w < OWN_WORDS; w++) {
            int word = tx + 16 * w;
            u32 value = word < WORDS ? rows[n * PITCH + word] : 0;
            float v0 = low(value), v1 = high(value);
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                sums[i][w][0] = fmaf(p[i], v0, sums[i][w][0]);
                sums[i][w][1] = fmaf(p[i], v1, sums[i][w][1]);
            }
        }
    }
}

// How far the last key that a row sees lies behind the row's own number; meaningless without a mask.
__device__ __forceinline__ int reach(const Call &call, int q_rows, int k_rows)
{
    return call.mask == 2 ? k_rows - q_rows : 0;
}

__device__ __forceinline__ bool sees(const Call &call, int shift, int row, int key)
{
    return call.mask == 0 || key <= row + shift;
}

// Keys that a tile whose last row is this sees.
__device__ __forceinline__ int keys_seen(const Call &call, int shift, int last_row, int k_rows)
{
    if (call.mask == 0) return k_rows;
    int seen = last_row + shift + 1;
    return seen < 0 ? 0 : (seen < k_rows ? seen : k_rows);
}

__device__ __forceinline__ const bf16 *at(const Call &call, i64 byte, int head)
{
    return (const bf16 *)(call.arena + byte) + (i64)head * D;
}

extern __shared__ u32 shared[];

// One block for a tile of rows and a query head.
extern "C" __global__ void __launch_bounds__(256) forward(const Call call)
{
    u32 *q = shared, *k = q + TILE * PITCH, *v = k + TILE * PITCH;
    float *p = (float *)(v + TILE * PITCH);
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    int2 tile = call.tiles[blockIdx.x];
    const i64 *slot = call.slots + (i64)tile.x * FIELDS;
    int q_rows = (int)slot[Q_ROWS], k_rows = (int)slot[K_ROWS], first = tile.y * TILE;
    int head = blockIdx.y, kv_head = head / (call.q_heads / call.kv_heads);
    int shift = reach(call, q_rows, k_rows);
    int last = min(first + TILE, q_rows) - 1, end = keys_seen(call, shift, last, k_rows);

    float highest[OWN], sum[OWN], out[OWN][OWN_WORDS][2];
    for (int i = 0; i < OWN; i++) {
        highest[i] = NOTHING;
        sum[i] = 0;
        for (int w = 0; w < OWN_WORDS; w++) out[i][w][0] = out[i][w][1] = 0;
    }
    load(q, at(call, slot[Q], head), call.q_stride, first, q_rows);
    for (int from = 0; from < end; from += TILE) {
        __syncthreads();
        load(k, at(call, slot[K], kv_head), call.kv_stride, from, k_rows);
        load(v, at(call, slot[V], kv_head), call.kv_stride, from, k_rows);
        __syncthreads();
        float s[OWN][OWN];
        products(s, q, k);
        for (int i = 0; i < OWN; i++) {
            int row = first + ty + 16 * i;
            float top = highest[i];
            for (int j = 0; j < OWN; j++) {
                int key = from + tx + 16 * j;
                bool seen = key < k_rows && row < q_rows && sees(call, shift, row, key);
                s[i][j] = seen ? s[i][j] * call.scale : NOTHING;
                top = fmaxf(top, s[i][j]);
            }
            for (int lane = 8; lane > 0; lane /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, lane));
            float old = highest[i] == top ? 1.0f : expf(highest[i] - top), row_sum = 0;
            for (int j = 0; j < OWN; j++) {
                float e = s[i][j] == NOTHING ? 0.0f : expf(s[i][j] - top);
                p[(ty + 16 * i) * SCORE_PITCH + tx + 16 * j] = e;
                row_sum += e;
            }
            for (int lane = 8; lane > 0; lane /= 2) row_sum += __shfl_xor_sync(0xffffffffu, row_sum, lane);
            sum[i] = sum[i] * old + row_sum;
            highest[i] = top;
            for (int w = 0; w < OWN_WORDS; w++) {
                out[i][w][0] *= old;
                out[i][w][1] *= old;
            }
        }
        __syncwarp();
        accumulate(out, p, SCORE_PITCH, 1, v);
    }
    for (int i = 0; i < OWN; i++) {
        int row = first + ty + 16 * i;
        if (row >= q_rows) continue;
        bf16 *o = (bf16 *)at(call, slot[O], head) + (i64)row * call.o_stride;
        store(o, out[i], sum[i] > 0 ? 1 / sum[i] : 0.0f);
        if (tx == 0) {
            float *lse = (float *)(call.arena + slot[LSE]) + (i64)row * call.lse_stride + head;
            *lse = sum[i] > 0 ? highest[i] + logf(sum[i]) : NOTHING;
        }
    }
}

// delta of a row and head = dO x O. One warp each.
extern "C" __global__ void __launch_bounds__(256) row_sums(const Call call)
{
    int2 tile = call.tiles[blockIdx.x];
    const i64 *slot = call.slots + (i64)tile.x * FIELDS;
    int head = blockIdx.y, lane = threadIdx.x % 32;
    for (int r = threadIdx.x / 32; r < TILE; r += 8) {
        int row = tile.y * TILE + r;
        if (row >= (int)slot[Q_ROWS]) return;
        const bf16 *o = at(call, slot[O], head) + (i64)row * call.o_stride;
        const bf16 *d_o = at(call, slot[D_O], head) + (i64)row * call.d_o_stride;
        float sum = 0;
        for (int c = lane; c < D; c += 32) sum += low(o[c]) * low(d_o[c]);
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0) call.delta[(slot[FIRST] + row) * call.q_heads + head] = sum;
    }
}

// P and dS of the thread's rows and keys, from Q x K and dO x V.
__device__ __forceinline__ void weights(const Call &call, const i64 *slot, int head, int shift, int first, int from,
                                        float (*s)[OWN], float (*ds)[OWN])
{
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    int q_rows = (int)slot[Q_ROWS], k_rows = (int)slot[K_ROWS];
    for (int i = 0; i < OWN; i++) {
        int row = first + ty + 16 * i;
        float lse = NOTHING, delta = 0;
        if (row < q_rows) {
            lse = *((const float *)(call.arena + slot[LSE]) + (i64)row * call.lse_stride + head);
            delta = call.delta[(slot[FIRST] + row) * call.q_heads + head];
        }
        for (int j = 0; j < OWN; j++) {
            int key = from + tx + 16 * j;
            bool seen = key < k_rows && lse != NOTHING && sees(call, shift, row, key);
            float p = seen ? expf(s[i][j] * call.scale - lse) : 0.0f;
            s[i][j] = p;
            ds[i][j] = seen ? p * (ds[i][j] - delta) * call.scale : 0.0f;
        }
    }
}

// One block for a tile of rows and a query head.
extern "C" __global__ void __launch_bounds__(256) backward_q(const Call call)
{
    u32 *q = shared, *d_o = q + TILE * PITCH, *k = d_o + TILE * PITCH, *v = k + TILE * PITCH;
    float *scores = (float *)(v + TILE * PITCH);
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    int2 tile = call.tiles[blockIdx.x];
    const i64 *slot = call.slots + (i64)tile.x * FIELDS;
    int q_rows = (int)slot[Q_ROWS], k_rows = (int)slot[K_ROWS], first = tile.y * TILE;
    int head = blockIdx.y, kv_head = head / (call.q_heads / call.kv_heads);
    int shift = reach(call, q_rows, k_rows);
    int last = min(first + TILE, q_rows) - 1, end = keys_seen(call, shift, last, k_rows);

    float sums[OWN][OWN_WORDS][2];
    for (int i = 0; i < OWN; i++)
        for (int w = 0; w < OWN_WORDS; w++) sums[i][w][0] = sums[i][w][1] = 0;
    load(q, at(call, slot[Q], head), call.q_stride, first, q_rows);
    load(d_o, at(call, slot[D_O], head), call.d_o_stride, first, q_rows);
    for (int from = 0; from < end; from += TILE) {
        __syncthreads();
        load(k, at(call, slot[K], kv_head), call.kv_stride, from, k_rows);
        load(v, at(call, slot[V], kv_head), call.kv_stride, from, k_rows);
        __syncthreads();
        float s[OWN][OWN], ds[OWN][OWN];
        products(s, q, k);
        products(ds, d_o, v);
        weights(call, slot, head, shift, first, from, s, ds);
        for (int i = 0; i < OWN; i++)
            for (int j = 0; j < OWN; j++) scores[(ty + 16 * i) * SCORE_PITCH + tx + 16 * j] = ds[i][j];
        __syncwarp();
        accumulate(sums, scores, SCORE_PITCH, 1, k);
    }
    for (int i = 0; i < OWN; i++) {
        int row = first + ty + 16 * i;
        if (row < q_rows) store((bf16 *)at(call, slot[DQ], head) + (i64)row * call.dq_stride, sums[i], 1.0f);
    }
}

// One block for a tile of keys and a KV head: it visits all rows of all query heads that the KV head serves, in order.
extern "C" __global__ void __launch_bounds__(256) backward_kv(const Call call)
{
    u32 *q = shared, *d_o = q + TILE * PITCH, *k = d_o + TILE * PITCH, *v = k + TILE * PITCH;
    float *p = (float *)(v + TILE * PITCH), *scores = p + TILE * SCORE_PITCH;
    int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    int2 tile = call.tiles[blockIdx.x];
    const i64 *slot = call.slots + (i64)tile.x * FIELDS;
    int q_rows = (int)slot[Q_ROWS], k_rows = (int)slot[K_ROWS], from = tile.y * TILE;
    int kv_head = blockIdx.y, group = call.q_heads / call.kv_heads;
    int shift = reach(call, q_rows, k_rows);
    // The first row that sees the first key of the tile.
    int start = call.mask == 0 ? 0 : max(0, from - shift);

    float dk[OWN][OWN_WORDS][2], dv[OWN][OWN_WORDS][2];
    for (int i = 0; i < OWN; i++)
        for (int w = 0; w < OWN_WORDS; w++) dk[i][w][0] = dk[i][w][1] = dv[i][w][0] = dv[i][w][1] = 0;
    load(k, at(call, slot[K], kv_head), call.kv_stride, from, k_rows);
    load(v, at(call, slot[V], kv_head), call.kv_stride, from, k_rows);
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        for (int first = start / TILE * TILE; first < q_rows; first += TILE) {
            __syncthreads();
            load(q, at(call, slot[Q], head), call.q_stride, first, q_rows);
            load(d_o, at(call, slot[D_O], head), call.d_o_stride, first, q_rows);
            __syncthreads();
            float s[OWN][OWN], ds[OWN][OWN];
            products(s, q, k);
            products(ds, d_o, v);
            weights(call, slot, head, shift, first, from, s, ds);
            for (int i = 0; i < OWN; i++)
                for (int j = 0; j < OWN; j++) {
                    p[(ty + 16 * i) * SCORE_PITCH + tx + 16 * j] = s[i][j];
                    scores[(ty + 16 * i) * SCORE_PITCH + tx + 16 * j] = ds[i][j];
                }
            __syncthreads();
            accumulate(dv, p, 1, SCORE_PITCH, d_o);
            accumulate(dk, scores, 1, SCORE_PITCH, q);
        }
    }
    for (int i = 0; i < OWN; i++) {
        int key = from + ty + 16 * i;
        if (key >= k_rows) continue;
        store((bf16 *)at(call, slot[DK], kv_head) + (i64)key * call.dkv_stride, dk[i], 1.0f);
        store((bf16 *)at(call, slot[DV], kv_head) + (i64)key * call.dkv_stride, dv[i], 1.0f);
    }
}
