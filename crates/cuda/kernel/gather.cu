// Copies many pieces of one length between scattered places, at the speed of the bus and with few multiprocessors.
//
// `table` has the source and the destination of each piece. The pieces are cut into parts of 4 KiB, and each warp takes every
// n-th part. A warp has 4 KiB of loads under way before it stores any of them: the bus is slow to answer and fast to
// deliver. Loads bypass the caches, which must not answer for the host's memory; stores are not kept for anybody.
//
// `len` is a multiple of 16, and so is every address.
//
// gather.ptx beside this file is what ships; scripts/kernels.sh makes it from this one.

#define PART 4096u
#define LANES 32u
#define WORDS (PART / 16u / LANES)

struct Place {
    unsigned long long from, to;
};

extern "C" __global__ void __launch_bounds__(1024)
tidepool_gather(const Place* table, unsigned long long pieces, unsigned long long len) {
    const unsigned lane = threadIdx.x % LANES;
    const unsigned long long warps = (unsigned long long)gridDim.x * (blockDim.x / LANES);
    const unsigned long long parts = (len + PART - 1) / PART;
    unsigned long long at = (unsigned long long)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
    for (; at < pieces * parts; at += warps) {
        const Place place = table[at / parts];
        const unsigned long long start = at % parts * PART;
        const uint4* from = (const uint4*)(place.from + start);
        uint4* to = (uint4*)(place.to + start);
        const unsigned words = (unsigned)((len - start < PART ? len - start : PART) / 16);
        if (words == PART / 16) {
            uint4 under_way[WORDS];
#pragma unroll
            for (unsigned i = 0; i < WORDS; i++) under_way[i] = __ldcv(from + lane + i * LANES);
#pragma unroll
            for (unsigned i = 0; i < WORDS; i++) __stcs(to + lane + i * LANES, under_way[i]);
        } else {
            for (unsigned word = lane; word < words; word += LANES) __stcs(to + word, __ldcv(from + word));
        }
    }
}
