// A team of threads that share one job at a time: `parallel_for` hands out tiles 0..n-1, each to exactly one thread.
//
// Tiles are claimed from an atomic counter, so whoever is fast does more, and a job ends when all its tiles are done, not
// when all workers have woken up. A thread that the operating system has taken off its core holds up the others for
// at most the one tile it holds. Waiting threads spin for some microseconds, then sleep: an idle team costs nothing.
#pragma once
#include <cstdint>

struct kvell_team;

namespace kvell {

using TileFn = void (*)(void* context, int64_t tile, int worker);  // worker 0 is the caller

// Returns when fn has run for every tile. One caller at a time; fn must not call it again.
void parallel_for(kvell_team* team, int64_t num_tiles, TileFn fn, void* context);

template <typename Body>
void parallel(kvell_team* team, int64_t num_tiles, Body&& body) {
  parallel_for(
      team, num_tiles, [](void* context, int64_t tile, int worker) { (*static_cast<Body*>(context))(tile, worker); },
      &body);
}

int num_threads(const kvell_team* team);

}  // namespace kvell
