// The thread team: see threads.h for what it promises.
//
// `ticket` holds the generation of the job (upper 40 bits) and the next tile (lower 24). A worker copies the ticket and
// then the job's fields, and claims a tile by compare-and-swap on the ticket. The swap succeeds only while that very
// generation is open, and a generation can't close before all its tiles are done; so a worker that wakes up late, with
// fields of a job long finished or half overwritten, fails to claim and touches nothing. Before the fields are
// overwritten the generation is raised with a tile number that no job reaches.
#include "threads.h"

#include <atomic>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "cpu.h"
#include "kernels.h"
#include "kvell.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

constexpr uint64_t TILE_BITS = 24, TILE_MASK = (uint64_t{1} << TILE_BITS) - 1;
constexpr auto SPIN = std::chrono::microseconds(40);

// A 32-bit word that threads can sleep on until somebody changes it.
class Gate {
 public:
  uint32_t value() const { return value_.load(std::memory_order_seq_cst); }

  void sleep_while(uint32_t seen) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
#if defined(__linux__)
    if (value() == seen)
      syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value_), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
#else
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return value() != seen; });
#endif
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

  void change() {
    value_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
#if defined(__linux__)
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value_), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
#else
    { std::lock_guard<std::mutex> lock(mutex_); }
    changed_.notify_all();
#endif
  }

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<int> sleepers_{0};
#if !defined(__linux__)
  std::mutex mutex_;
  std::condition_variable changed_;
#endif
};

// Spins until `ready`, but no longer than SPIN. Says whether it is ready.
template <typename Ready>
bool spin(Ready&& ready) {
  const auto end = std::chrono::steady_clock::now() + SPIN;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      kvell::relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

}  // namespace

struct kvell_team {
  int isa;
  const kvell::Kernels* kernels;
  std::vector<std::thread> workers;
  alignas(64) std::atomic<uint64_t> ticket{TILE_MASK};
  std::atomic<int64_t> num_tiles{0};
  std::atomic<kvell::TileFn> fn{nullptr};
  std::atomic<void*> context{nullptr};
  std::atomic<bool> leaving{false};
  alignas(64) std::atomic<int64_t> num_done{0};
  alignas(64) Gate started;
  alignas(64) Gate finished;

  // Claims and runs tiles of the present job until there are none left.
  void work(int worker) {
    for (;;) {
      uint64_t seen = ticket.load(std::memory_order_acquire);
      const int64_t tiles = num_tiles.load(std::memory_order_acquire);
      const kvell::TileFn run = fn.load(std::memory_order_acquire);
      void* const data = context.load(std::memory_order_acquire);
      const int64_t tile = static_cast<int64_t>(seen & TILE_MASK);
      if (tile >= tiles) return;
      if (!ticket.compare_exchange_strong(seen, seen + 1, std::memory_order_acq_rel)) continue;
      run(data, tile, worker);
      // The last one done tells the caller. Nothing of the job may be touched after this.
      if (num_done.fetch_add(1, std::memory_order_acq_rel) + 1 == tiles && worker != 0) finished.change();
    }
  }

  void serve(int worker) {
    uint32_t seen = 0;
    for (;;) {
      if (!spin([&] { return started.value() != seen; })) {
        while (started.value() == seen) started.sleep_while(seen);
      }
      seen = started.value();
      if (leaving.load(std::memory_order_acquire)) return;
      work(worker);
    }
  }

  void publish(int64_t tiles, kvell::TileFn run, void* data) {
    const uint64_t generation = (ticket.load(std::memory_order_relaxed) >> TILE_BITS) + 1;
    ticket.store(generation << TILE_BITS | TILE_MASK, std::memory_order_seq_cst);
    num_tiles.store(tiles, std::memory_order_release);
    fn.store(run, std::memory_order_release);
    context.store(data, std::memory_order_release);
    num_done.store(0, std::memory_order_release);
    ticket.store((generation + 1) << TILE_BITS, std::memory_order_seq_cst);
    started.change();
  }

  void wait() {
    const int64_t tiles = num_tiles.load(std::memory_order_relaxed);
    const auto done = [&] { return num_done.load(std::memory_order_acquire) == tiles; };
    if (spin(done)) return;
    for (;;) {
      const uint32_t seen = finished.value();
      if (done()) return;
      finished.sleep_while(seen);
    }
  }
};

namespace kvell {

void parallel_for(kvell_team* team, int64_t num_tiles, TileFn fn, void* context) {
  if (num_tiles == 1 || team->workers.empty()) {
    for (int64_t tile = 0; tile < num_tiles; ++tile) fn(context, tile, 0);
    return;
  }
  assert(num_tiles < static_cast<int64_t>(TILE_MASK) && "more tiles than a ticket counts");
  team->publish(num_tiles, fn, context);
  team->work(0);
  team->wait();
}

int num_threads(const kvell_team* team) { return static_cast<int>(team->workers.size()) + 1; }
const Kernels& kernels_of(const kvell_team* team) { return *team->kernels; }

kvell_team* make_team(int threads, int isa, const Kernels& kernels) {
  auto* team = new kvell_team;
  team->isa = isa;
  team->kernels = &kernels;
  try {
    for (int worker = 1; worker < threads; ++worker) team->workers.emplace_back([=] { team->serve(worker); });
  } catch (const std::exception&) {  // the system gives no more threads
    kvell_team_destroy(team);
    return nullptr;
  }
  return team;
}

}  // namespace kvell

kvell_team* kvell_team_create(int32_t threads, int32_t isa) {
  const kvell::Kernels* kernels = kvell::kernels_of(isa);
  return threads < 1 || !kernels ? nullptr : kvell::make_team(threads, isa, *kernels);
}

void kvell_team_destroy(kvell_team* team) {
  team->leaving.store(true, std::memory_order_release);
  team->started.change();
  for (auto& worker : team->workers) worker.join();
  delete team;
}

int32_t kvell_team_threads(const kvell_team* team) { return kvell::num_threads(team); }
int32_t kvell_team_isa(const kvell_team* team) { return team->isa; }
