// Occupancy as NVIDIA's calculator has it: what threads, registers and shared memory of a block leave room for on one
// multiprocessor. Limits by compute capability from the CUDA C++ Programming Guide, "Technical Specifications".

interface Limits {
    readonly threads: number;
    readonly blocks: number;
    readonly shared: number;
}

const KIB = 1024;
const REGISTERS = 65_536;
const WARP = 32;
/** Registers are given to a warp in units of 256, shared memory to a block with 1 KiB for the system. */
const UNIT = 256;
const SYSTEM_SHARED = KIB;

const LIMITS: Record<string, Limits> = {
    sm_75: { threads: 1024, blocks: 16, shared: 64 * KIB },
    sm_80: { threads: 2048, blocks: 32, shared: 164 * KIB },
    sm_86: { threads: 1536, blocks: 16, shared: 100 * KIB },
    sm_89: { threads: 1536, blocks: 24, shared: 100 * KIB },
    sm_90: { threads: 2048, blocks: 32, shared: 228 * KIB },
    sm_100: { threads: 2048, blocks: 32, shared: 228 * KIB },
    sm_120: { threads: 1536, blocks: 24, shared: 100 * KIB },
};

/** Share of a multiprocessor's threads that can be resident, from 0 to 1; null for an architecture that is not listed. */
export function occupancy(arch: string, blockThreads: number, registers: number, sharedBytes: number): number | null {
    const limits = LIMITS[arch.replace(/[af]$/, "")];
    if (!limits || blockThreads <= 0) return null;
    const warps = Math.ceil(blockThreads / WARP);
    const byThreads = Math.floor(limits.threads / (warps * WARP));
    const perWarp = Math.ceil((registers * WARP) / UNIT) * UNIT;
    const byRegisters = registers ? Math.floor(Math.floor(REGISTERS / perWarp) / warps) : Infinity;
    const byShared = Math.floor(limits.shared / (sharedBytes + SYSTEM_SHARED));
    const blocks = Math.min(byThreads, byRegisters, byShared, limits.blocks);
    return (blocks * warps * WARP) / limits.threads;
}
