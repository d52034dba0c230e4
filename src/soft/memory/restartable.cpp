// SPDX-License-Identifier: BSD-3-Clause
#include "soft/memory/restartable.hpp"

#include <linux/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "base/fork.hpp"
#include "persist/guard.hpp"

#if defined(__x86_64__) && __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#define RESTARTABLE 1
#else
#define RESTARTABLE 0
#endif

namespace soft::restartable {

namespace {

// The numbers that the instructions below return. A system call returns larger ones.
constexpr long is_done = 0;
constexpr long is_interrupted = -5001;
constexpr long is_refused = -5002;
[[maybe_unused]] constexpr long is_faulted = -5004;
[[maybe_unused]] constexpr long is_lost =
    -5003;  // the bytes were not the expected ones; in the instructions only

// The operands of the sequence. The instructions know where each is.
struct Request {
    std::uint64_t first;   // where to copy, or exchange
    std::uint64_t second;  // from where to copy; what is expected, and then what was found
    std::uint64_t third;   // how many bytes to copy; what is desired
    std::uint64_t kind;    // 2: copies, 4: exchanges, 6: makes the system call
    std::uint64_t call;
    std::uint64_t arguments[5];
    std::uint64_t reached;  // where the copy ended
    std::uint64_t stretch;
    const std::uint64_t *present;  // the number of the present stretch
};
static_assert(offsetof(Request, kind) == 24 && offsetof(Request, call) == 32 &&
              offsetof(Request, arguments) == 40 && offsetof(Request, reached) == 80 &&
              offsetof(Request, stretch) == 88 && offsetof(Request, present) == 96);
constexpr std::uint64_t copies = 2;
constexpr std::uint64_t exchanges = 4;
constexpr std::uint64_t calls = 6;

}  // namespace

#if RESTARTABLE

// The kernel reads this description of the sequence.
extern "C" [[gnu::visibility("hidden")]] const rseq_cs softrdma_sequence_described;
extern "C" [[gnu::visibility("hidden")]] const char softrdma_sequence_end[];
extern "C" [[gnu::visibility("hidden")]] const char softrdma_sequence_faulted[];

// The sequence is from 1 to 6. The kernel lets a thread that it interrupts there go on at 91. It clears the
// field, also when it interrupts the thread before 1. So the first look is at the field. The second one finds
// a signal handler that has asked for a stretch meanwhile, and the third is at the offer.
//
// An interrupted copy goes on with the next sequence, and may store some bytes again. An exchange that was
// made must not be made again: it has set the zero flag, and r10 tells that the flag is its. The system call
// is the last instruction of the sequence, so a thread that is interrupted there has not begun it.
//
// Where memory is gone, the thread goes on at softrdma_sequence_faulted, as persist's handler has it.
//
// Less than a kibibyte is copied by 16 bytes, and more by a string instruction, which is as fast as memcpy(3)
// then.
extern "C" [[gnu::naked, gnu::used, gnu::visibility("hidden")]] long softrdma_sequence(
    volatile __u64 * /*field*/, const std::atomic<std::uint32_t> * /*place*/, std::uint32_t /*value*/,
    Request * /*request*/) {
    asm(R"(
        .pushsection .data.rel.ro.softrdma_sequence, "aw", @progbits
        .balign 32
        .globl softrdma_sequence_described
        .hidden softrdma_sequence_described
        .type softrdma_sequence_described, @object
        .size softrdma_sequence_described, 32
softrdma_sequence_described:
        .long 0, 0
        .quad 1f, 6f - 1f, 91f
        .popsection

        movq %rdi, %r8
        movq %rsi, %r9
        movq %rcx, %r11
        movq 24(%r11), %r10
        movq (%r11), %rdi
        movq 8(%r11), %rsi
        movq 16(%r11), %rcx
        leaq softrdma_sequence_described(%rip), %rax
1:      cmpq %rax, (%r8)
        jne 92f
        movq 88(%r11), %rax
        movq 96(%r11), %r8
        cmpq %rax, (%r8)
        jne 92f
        cmpl %edx, (%r9)
        jne 93f
        cmpq $4, %r10
        je 4f
        ja 5f

        cmpq $8, %rcx
        jne 2f
        movq (%rsi), %rax
        movq %rax, (%rdi)
        addq $8, %rdi
        jmp 94f
2:      cmpq $16, %rcx
        jb 3f
        cmpq $1024, %rcx
        jae 3f
        leaq -16(%rdi,%rcx), %r8
        leaq -16(%rsi,%rcx), %r9
21:     movups (%rsi), %xmm0
        movups %xmm0, (%rdi)
        addq $16, %rsi
        addq $16, %rdi
        cmpq %r8, %rdi
        jb 21b
        movups (%r9), %xmm0
        movups %xmm0, (%r8)
        leaq 16(%r8), %rdi
        jmp 94f
3:      rep movsb
        jmp 94f

4:      movq %rsi, %rax
        xorl %r10d, %r10d
        orq $1, %r10
        lock cmpxchgq %rcx, (%rdi)
        je 94f
        jmp 95f

5:      movq 32(%r11), %rax
        movq 40(%r11), %rdi
        movq 48(%r11), %rsi
        movq 56(%r11), %rdx
        movq 64(%r11), %r10
        movq 72(%r11), %r8
        xorl %r9d, %r9d
        syscall
6:      ret

        .byte 0x0f, 0xb9, 0x3d
        .long 0x53053053
91:     jne 92f
        cmpq $1, %r10
        je 94f
92:     movq %rdi, 80(%r11)
        movq $-5001, %rax
        ret
93:     movq $-5002, %rax
        ret
94:     movq %rdi, 80(%r11)
        xorl %eax, %eax
        ret
95:     movq %rax, 8(%r11)
        movq $-5003, %rax
        ret
        .globl softrdma_sequence_end, softrdma_sequence_faulted
        .hidden softrdma_sequence_end, softrdma_sequence_faulted
softrdma_sequence_end:
softrdma_sequence_faulted:
        movq $-5004, %rax
        ret
)");
}

namespace {

static_assert(RSEQ_SIG == 0x53053053);

const persist::GuardedInstructions guarded_sequence{reinterpret_cast<const void *>(&softrdma_sequence),
                                                    softrdma_sequence_end, softrdma_sequence_faulted};

// The stretch of this thread that was present last. It is initial-exec, as guard.cpp's variables are: each
// access of a few bytes looks at it.
struct Last {
    Stretch stretch;
    unsigned forks;
};
[[gnu::tls_model("initial-exec")]] thread_local constinit Last last{};
std::atomic<std::uint64_t> stretches{0};

// The kernel changes it at any time.
volatile rseq &area() {
    return *reinterpret_cast<rseq *>(static_cast<char *>(__builtin_thread_pointer()) + __rseq_offset);
}

// The C library has registered the thread, unless a tool or the kernel does not let it.
bool is_registered() {
    return __rseq_size != 0 && static_cast<int>(area().cpu_id) >= 0;
}

long run(const Look &look, Request &request) {
    persist::ensure_guard();
    request.stretch = look.stretch.number;
    request.present = &last.stretch.number;
    return softrdma_sequence(&area().rseq_cs, look.place, look.value, &request);
}

}  // namespace

// Only an interruption clears the field of a thread that is in no sequence. It costs that thread nothing
// else.
Stretch present_stretch() {
    if (!is_registered()) {
        return {};
    }
    const auto described = reinterpret_cast<std::uintptr_t>(&softrdma_sequence_described);
    const unsigned forks = base::fork_generation();
    if (area().rseq_cs != described || last.forks != forks) {
        area().rseq_cs = described;
        std::atomic_signal_fence(std::memory_order_seq_cst);
        const std::uint64_t number = stretches.fetch_add(1, std::memory_order_relaxed) + 1;
        last = {.stretch = {.number = number, .thread = gettid()}, .forks = forks};
    }
    return last.stretch;
}

#else

namespace {

long run(const Look & /*look*/, Request & /*request*/) {
    return is_interrupted;
}

}  // namespace

Stretch present_stretch() {
    return {};
}

#endif

namespace {

Outcome outcome_of(long result) {
    return result == is_interrupted ? Outcome::Interrupted
           : result == is_refused   ? Outcome::Refused
           : result == is_faulted   ? Outcome::Faulted
                                    : Outcome::Done;
}

}  // namespace

Outcome copy(const Look &look, Copy &copy) {
    Request request;  // the instructions use no other member
    request.first = request.reached = reinterpret_cast<std::uintptr_t>(copy.to);
    request.second = reinterpret_cast<std::uintptr_t>(copy.from);
    request.third = copy.bytes;
    request.kind = copies;
    if (const long result = run(look, request); result == is_refused || result == is_faulted) [[unlikely]] {
        return outcome_of(result);
    }
    const std::size_t copied = request.reached - request.first;
    copy = {.to = copy.to + copied, .from = copy.from + copied, .bytes = copy.bytes - copied};
    return copy.bytes == 0 ? Outcome::Done : Outcome::Interrupted;
}

// The instructions store at `to`.
// NOLINTNEXTLINE(readability-non-const-parameter)
Outcome exchange(const Look &look, std::uint64_t *to, std::uint64_t &expected, std::uint64_t desired,
                 bool &replaced) {
    Request request;
    request.first = reinterpret_cast<std::uintptr_t>(to);
    request.second = expected;
    request.third = desired;
    request.kind = exchanges;
    const long result = run(look, request);
    expected = request.second;
    replaced = result == is_done;
    return outcome_of(result);
}

Outcome transfer(const Look &look, long call, pid_t peer, std::span<const iovec> here, const iovec &there,
                 ssize_t &result) {
    Request request{
        .first = 0,
        .second = 0,
        .third = 0,
        .kind = calls,
        .call = static_cast<std::uint64_t>(call),
        .arguments = {static_cast<std::uint64_t>(peer), reinterpret_cast<std::uintptr_t>(here.data()),
                      here.size(), reinterpret_cast<std::uintptr_t>(&there), 1},
        .reached = 0,
        .stretch = 0,
        .present = nullptr};
    if (look.stretch.number != 0) {
        result = run(look, request);
        return outcome_of(result);
    }
    result = syscall(call, peer, here.data(), here.size(), &there, 1UL, 0UL);
    result = result < 0 ? -errno : result;
    return Outcome::Done;
}

}  // namespace soft::restartable
