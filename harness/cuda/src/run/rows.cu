// Moves, merges and makes rows. Nothing here computes attention.
//
// A launch gets a table of moves and the number of the first chunk of every move; every warp does one chunk. The host
// side is rows.rs, whose structures these are byte by byte.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A NaN that no computation makes: the log-sum-exp of a row and head that a warp is merging into.
#define BUSY 0x7fb1c0deu
#define MINUS_INFINITY 0xff800000u
#define UNITS 4  // units of a lane in a chunk of a move
#define MERGES 8 // rows and heads in a chunk of a merge
#define FLYING 4 // reads of a lane at once, from each end of a merge

struct Move {
    u64 from, to;               // addresses
    u64 from_stride, to_stride; // bytes between rows
    u64 from_lse, to_lse;
    u64 from_lse_stride, to_lse_stride;
    u32 units;  // units of all rows; of a merge: rows x heads
    u32 across; // units of a row; of a merge: heads
    u32 width;  // of a merge: elements of a row and head
    u32 bits;   // what a taken word becomes
    u32 kind;   // see below
    u32 pad;
};

// Kinds of unit: element types of source and destination, elements of a unit.
enum {
    COPY_16 = 0,   // 16 bytes as they are
    COPY_4 = 1,    // 4 bytes as they are
    COPY_2 = 2,    // 2 bytes as they are
    WIDEN_4 = 3,   // 4 elements bf16 to f32
    WIDEN_1 = 4,   // 1 element
    ROUND_4 = 5,   // 4 elements f32 to bf16
    ROUND_1 = 6,   // 1 element
    ADD_4 = 8,     // 4 elements f32 onto f32
    ADD_1 = 9,     // 1 element
    ADD_BF16_4 = 10, // 4 elements bf16 onto f32
    ADD_BF16_1 = 11, // 1 element
    MERGE = 16,      // f32 into f32
    MERGE_BF16 = 17, // bf16 into f32
};
#define TAKE 32   // flag: the source's words become `bits`
#define SCALAR 64 // flag: of a merge whose addresses are not aligned

__device__ __forceinline__ float from_bf16(u32 bits) { return __uint_as_float(bits << 16); }

// Nearest, ties to even; NaN stays NaN.
__device__ __forceinline__ u32 to_bf16(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

__device__ __forceinline__ float4 widen(uint2 v) {
    return make_float4(from_bf16(v.x & 0xffffu), from_bf16(v.x >> 16), from_bf16(v.y & 0xffffu), from_bf16(v.y >> 16));
}

__device__ __forceinline__ uint2 round4(float4 v) {
    return make_uint2(to_bf16(v.x) | to_bf16(v.y) << 16, to_bf16(v.z) | to_bf16(v.w) << 16);
}

__device__ __forceinline__ void add4(float *to, float4 v) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
#else
    atomicAdd(to, v.x);
    atomicAdd(to + 1, v.y);
    atomicAdd(to + 2, v.z);
    atomicAdd(to + 3, v.w);
#endif
}

// The last move whose first chunk is not past `chunk`: every step asks 32 places at once.
__device__ __forceinline__ u32 find(const u32 *__restrict__ first, u32 moves, u32 chunk) {
    u32 lane = threadIdx.x & 31, low = 0, high = moves;
    while (high - low > 1) {
        u32 step = (high - low + 31) / 32;
        u32 at = low + (lane + 1) * step;
        bool before = at < high && first[at] <= chunk;
        u32 passed = __popc(__ballot_sync(0xffffffffu, before));
        low += passed * step;
        high = min(high, low + step);
    }
    return low;
}

// Loads `UNITS` units a lane, then stores them: many loads are in flight.
template <typename Load, typename Store>
__device__ __forceinline__ void each_unit(const Move &m, u32 chunk, u32 from_bytes, u32 to_bytes, Load load, Store store) {
    u32 lane = threadIdx.x & 31;
    u32 base = chunk * (32 * UNITS) + lane;
    decltype(load((const u8 *)0)) held[UNITS];
    u64 to[UNITS], from[UNITS];
#pragma unroll
    for (int k = 0; k < UNITS; ++k) {
        u32 unit = base + k * 32;
        if (unit < m.units) {
            u32 row = unit / m.across, column = unit - row * m.across;
            from[k] = m.from + row * m.from_stride + (u64)column * from_bytes;
            to[k] = m.to + row * m.to_stride + (u64)column * to_bytes;
            held[k] = load((const u8 *)from[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < UNITS; ++k) {
        if (base + k * 32 < m.units) store((u8 *)to[k], held[k], (u8 *)from[k]);
    }
}

// What the lane of a row and head that is merged knows, and all lanes of its warp are told.
struct Part {
    u64 from, to; // addresses
    float a, b;   // weights of what is there and of what comes
};

__device__ __forceinline__ float4 loaded(const float4 *from) { return __ldcg(from); }
__device__ __forceinline__ float4 loaded(const uint2 *from) { return widen(__ldcg(from)); }
__device__ __forceinline__ float loaded(const float *from) { return __ldcg(from); }
__device__ __forceinline__ float loaded(const u16 *from) { return from_bf16(__ldcg(from)); }

__device__ __forceinline__ float4 mixed(float a, float4 o, float b, float4 v) {
    return make_float4(a * o.x + b * v.x, a * o.y + b * v.y, a * o.z + b * v.z, a * o.w + b * v.w);
}
__device__ __forceinline__ float mixed(float a, float o, float b, float v) { return a * o + b * v; }

// Merges the rows and heads of `taken`, each of `across` elements of type To; what lies where one of `fresh` goes is not
// read. The elements of all of them are dealt out to the lanes, of which each reads `FLYING`, from both ends, before it
// uses the first.
template <typename From, typename To>
__device__ __forceinline__ void merge_parts(const Part &mine, u32 taken, u32 fresh, u32 across) {
    u32 lane = threadIdx.x & 31, all = MERGES * across;
    for (u32 base = 0; base < all; base += 32 * FLYING) {
        To incoming[FLYING], there[FLYING];
#pragma unroll
        for (int k = 0; k < FLYING; ++k) {
            u32 at = base + k * 32 + lane, of = min(at / across, MERGES - 1), element = at - of * across;
            u64 from = __shfl_sync(0xffffffffu, mine.from, of), to = __shfl_sync(0xffffffffu, mine.to, of);
            bool ours = at < all && (taken >> of & 1);
            if (ours) incoming[k] = loaded((const From *)from + element);
            if (ours && !(fresh >> of & 1)) there[k] = __ldcg((const To *)to + element);
        }
#pragma unroll
        for (int k = 0; k < FLYING; ++k) {
            u32 at = base + k * 32 + lane, of = min(at / across, MERGES - 1), element = at - of * across;
            u64 to = __shfl_sync(0xffffffffu, mine.to, of);
            float a = __shfl_sync(0xffffffffu, mine.a, of), b = __shfl_sync(0xffffffffu, mine.b, of);
            if (at < all && (taken >> of & 1)) {
                To v = fresh >> of & 1 ? incoming[k] : mixed(a, there[k], b, incoming[k]);
                __stcg((To *)to + element, v);
            }
        }
    }
}

// A warp merges a chunk of rows and heads. One lane each takes those that nobody else holds, and the warp goes round until
// all are done: nothing is held while something is waited for.
__device__ __forceinline__ void merge_chunk(const Move &m, u32 chunk) {
    u32 lane = threadIdx.x & 31, index = chunk * MERGES + lane;
    bool bf16 = (m.kind & 31) == MERGE_BF16;
    Part mine = {};
    float from_lse = __uint_as_float(MINUS_INFINITY);
    u32 *lock = 0;
    if (lane < MERGES && index < m.units) {
        u32 row = index / m.across, head = index - row * m.across;
        from_lse = __uint_as_float(__ldcg((const u32 *)(m.from_lse + row * m.from_lse_stride) + head));
        lock = (u32 *)(m.to_lse + row * m.to_lse_stride) + head;
        mine.from = m.from + row * m.from_stride + (u64)head * m.width * (bf16 ? 2 : 4);
        mine.to = m.to + row * m.to_stride + (u64)head * m.width * 4;
    }
    // A source of nothing adds nothing.
    bool pending = from_lse != __uint_as_float(MINUS_INFINITY);
    while (__ballot_sync(0xffffffffu, pending)) {
        u32 held = pending ? atomicExch(lock, BUSY) : BUSY;
        bool got = held != BUSY;
        u32 taken = __ballot_sync(0xffffffffu, got);
        u32 fresh = __ballot_sync(0xffffffffu, held == MINUS_INFINITY);
        if (!taken) {
            __nanosleep(32);
            continue;
        }
        __threadfence();
        __syncwarp();
        float to_lse = __uint_as_float(held), lse = from_lse;
        mine.a = 0.0f;
        mine.b = 1.0f;
        if (got && held != MINUS_INFINITY) {
            float most = fmaxf(to_lse, from_lse);
            float wa = expf(to_lse - most), wb = expf(from_lse - most);
            float sum = wa + wb;
            mine.a = wa / sum;
            mine.b = wb / sum;
            lse = most + logf(sum);
            // fmaxf drops a NaN; a sum that is not a number must stay one.
            if (to_lse != to_lse) lse = mine.a = to_lse;
            if (from_lse != from_lse) lse = mine.b = from_lse;
        }
        if (m.kind & SCALAR) {
            if (bf16) merge_parts<u16, float>(mine, taken, fresh, m.width);
            else merge_parts<float, float>(mine, taken, fresh, m.width);
        } else {
            if (bf16) merge_parts<uint2, float4>(mine, taken, fresh, m.width / 4);
            else merge_parts<float4, float4>(mine, taken, fresh, m.width / 4);
        }
        __threadfence();
        __syncwarp();
        if (got) {
            u32 bits = __float_as_uint(lse);
            atomicExch(lock, bits == BUSY ? 0x7fc00000u : bits);
        }
        pending = pending && !got;
    }
}

// Does what a table says. Merges hold more registers than moves, which run faster beside more of their kind: a table
// without merges has a kernel without them.
template <bool WITH_MERGES>
__device__ __forceinline__ void do_table(const Move *__restrict__ moves, const u32 *__restrict__ first, u32 count,
                                         u32 chunks) {
    u32 warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (warp >= chunks) return;
    u32 at = find(first, count, warp);
    const Move &m = moves[at];
    u32 chunk = warp - first[at];
    u32 bits = m.bits;
    switch (m.kind) {
    case COPY_16:
        each_unit(m, chunk, 16, 16, [](const u8 *p) { return __ldcg((const uint4 *)p); },
                  [](u8 *p, uint4 v, u8 *) { *(uint4 *)p = v; });
        break;
    case COPY_4:
        each_unit(m, chunk, 4, 4, [](const u8 *p) { return __ldcg((const u32 *)p); },
                  [](u8 *p, u32 v, u8 *) { *(u32 *)p = v; });
        break;
    case COPY_2:
        each_unit(m, chunk, 2, 2, [](const u8 *p) { return __ldcg((const u16 *)p); },
                  [](u8 *p, u16 v, u8 *) { *(u16 *)p = v; });
        break;
    case WIDEN_4:
        each_unit(m, chunk, 8, 16, [](const u8 *p) { return __ldcg((const uint2 *)p); },
                  [](u8 *p, uint2 v, u8 *) { *(float4 *)p = widen(v); });
        break;
    case WIDEN_1:
        each_unit(m, chunk, 2, 4, [](const u8 *p) { return __ldcg((const u16 *)p); },
                  [](u8 *p, u16 v, u8 *) { *(float *)p = from_bf16(v); });
        break;
    case ROUND_4:
        each_unit(m, chunk, 16, 8, [](const u8 *p) { return __ldcg((const float4 *)p); },
                  [](u8 *p, float4 v, u8 *) { *(uint2 *)p = round4(v); });
        break;
    case ROUND_1:
        each_unit(m, chunk, 4, 2, [](const u8 *p) { return __ldcg((const float *)p); },
                  [](u8 *p, float v, u8 *) { *(u16 *)p = (u16)to_bf16(v); });
        break;
    case COPY_16 | TAKE:
        each_unit(m, chunk, 16, 16, [](const u8 *p) { return __ldcg((const uint4 *)p); },
                  [bits](u8 *p, uint4 v, u8 *from) {
                      *(uint4 *)p = v;
                      *(uint4 *)from = make_uint4(bits, bits, bits, bits);
                  });
        break;
    case COPY_4 | TAKE:
        each_unit(m, chunk, 4, 4, [](const u8 *p) { return __ldcg((const u32 *)p); },
                  [bits](u8 *p, u32 v, u8 *from) {
                      *(u32 *)p = v;
                      *(u32 *)from = bits;
                  });
        break;
    case ROUND_4 | TAKE:
        each_unit(m, chunk, 16, 8, [](const u8 *p) { return __ldcg((const float4 *)p); },
                  [bits](u8 *p, float4 v, u8 *from) {
                      *(uint2 *)p = round4(v);
                      *(uint4 *)from = make_uint4(bits, bits, bits, bits);
                  });
        break;
    case ROUND_1 | TAKE:
        each_unit(m, chunk, 4, 2, [](const u8 *p) { return __ldcg((const float *)p); },
                  [bits](u8 *p, float v, u8 *from) {
                      *(u16 *)p = (u16)to_bf16(v);
                      *(u32 *)from = bits;
                  });
        break;
    case ADD_4:
        each_unit(m, chunk, 16, 16, [](const u8 *p) { return __ldcg((const float4 *)p); },
                  [](u8 *p, float4 v, u8 *) { add4((float *)p, v); });
        break;
    case ADD_1:
        each_unit(m, chunk, 4, 4, [](const u8 *p) { return __ldcg((const float *)p); },
                  [](u8 *p, float v, u8 *) { atomicAdd((float *)p, v); });
        break;
    case ADD_BF16_4:
        each_unit(m, chunk, 8, 16, [](const u8 *p) { return __ldcg((const uint2 *)p); },
                  [](u8 *p, uint2 v, u8 *) { add4((float *)p, widen(v)); });
        break;
    case ADD_BF16_1:
        each_unit(m, chunk, 2, 4, [](const u8 *p) { return __ldcg((const u16 *)p); },
                  [](u8 *p, u16 v, u8 *) { atomicAdd((float *)p, from_bf16(v)); });
        break;
    default:
        if (WITH_MERGES) merge_chunk(m, chunk);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    move_rows(const Move *__restrict__ moves, const u32 *__restrict__ first, u32 count, u32 chunks) {
    do_table<false>(moves, first, count, chunks);
}

extern "C" __global__ void __launch_bounds__(256, 3)
    merge_rows(const Move *__restrict__ moves, const u32 *__restrict__ first, u32 count, u32 chunks) {
    do_table<true>(moves, first, count, chunks);
}

// Spins for so many nanoseconds, so that the host gets ahead.
extern "C" __global__ void hold(u64 nanoseconds) {
    u64 start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        __nanosleep(200);
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}

// Rows of one run of a tensor, made from their coordinates alone.
struct Made {
    u64 to;     // address of the first row: bf16 [rows, heads, width]
    u64 key;    // of seed, tensor and sequence
    u32 row, stride; // first row of the sequence, distance to the next
    u32 head;        // first head
    u32 heads, width;
    u32 rows;
    u64 first; // elements of the runs before this one
};

// As splitmix64 mixes its counter.
__device__ __forceinline__ u64 mix(u64 x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

extern "C" __global__ void make_inputs(const Made *__restrict__ runs, u32 count, u64 elements) {
    u64 all = (u64)gridDim.x * blockDim.x;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < elements; at += all) {
        u32 low = 0, high = count;
        while (high - low > 1) {
            u32 middle = (low + high) / 2;
            if (runs[middle].first <= at) low = middle;
            else high = middle;
        }
        const Made &r = runs[low];
        u64 inside = at - r.first;
        u32 element = (u32)(inside % r.width);
        u64 rest = inside / r.width;
        u32 head = (u32)(rest % r.heads), row = (u32)(rest / r.heads);
        u64 place = mix(r.key + (r.row + (u64)row * r.stride + 1) * 0x9e3779b97f4a7c15ull);
        u64 bits = mix(place + (((u64)(r.head + head) << 32 | element) + 1) * 0x9e3779b97f4a7c15ull);
        int sum = (int)(bits & 0xffff) + (int)(bits >> 16 & 0xffff) + (int)(bits >> 32 & 0xffff) + (int)(bits >> 48);
        ((u16 *)r.to)[inside] = (u16)to_bf16(__fmul_rn((float)(sum - 131070), __uint_as_float(0x37ddb3d7u)));
    }
}
