// NCCL between processes of one machine.
//
// Ranks exchange what they hold in a shared file, one collective after another. It is done when the call returns, not
// in the order of a stream. Sums are computed, so that numbers which came from the host are those of all ranks. The
// types are those of nccl.h, which needs headers that PyTorch does not bring.

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" void null_gpu_count(const char *what, long much);  // null_cuda.cpp

namespace {

enum Result { ncclSuccess = 0, ncclRemoteError = 6 };
enum DataType { Int8, Uint8, Int32, Uint32, Int64, Uint64, Float16, Float32, Float64, Bfloat16 };
struct UniqueId {
  char internal[128];
};

constexpr size_t PIECE = 1 << 20;
constexpr int PATIENCE = 60;   // seconds until a rank gives up another
constexpr int MOST_RANKS = 8;
struct Meeting {
  std::atomic<int> arrived, round;
  char data[MOST_RANKS][PIECE];
};
struct Communicator {
  int rank, ranks;
  Meeting *meeting;
};

// Returns false if the others do not come.
bool meet(Communicator *c) {
  int round = c->meeting->round;
  if (++c->meeting->arrived == c->ranks) {
    c->meeting->arrived = 0;
    c->meeting->round++;
    return true;
  }
  auto began = std::chrono::steady_clock::now();
  while (c->meeting->round == round) {
    if (std::chrono::steady_clock::now() - began > std::chrono::seconds(PATIENCE)) return false;
    sched_yield();
  }
  return true;
}
Meeting *open_meeting(const char *name) {
  std::string path = std::string(getenv("NULL_GPU_FOLDER")) + "/nccl-" + name;
  int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Meeting))) abort();
  void *p = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return static_cast<Meeting *>(p);
}
size_t get_width(DataType type) {
  switch (type) {
    case Int8:
    case Uint8: return 1;
    case Float16:
    case Bfloat16: return 2;
    case Int64:
    case Uint64:
    case Float64: return 8;
    default: return 4;
  }
}
template <class T>
void add(void *sum, const void *part, size_t n) {
  for (size_t i = 0; i < n; i++) static_cast<T *>(sum)[i] += static_cast<const T *>(part)[i];
}
void add_numbers(void *sum, const void *part, size_t n, DataType type) {
  switch (type) {
    case Int8:
    case Uint8: return add<unsigned char>(sum, part, n);
    case Int64:
    case Uint64: return add<long>(sum, part, n);
    case Float32: return add<float>(sum, part, n);
    case Float64: return add<double>(sum, part, n);
    default: return;  // sums of other types have no meaning
  }
}
// Show a piece of what every rank has to all, and `take` what one needs from those.
template <class Take>
Result exchange(Communicator *c, const void *mine, size_t bytes, Take take) {
  null_gpu_count("collectives", 1);
  null_gpu_count("bytes of collectives", bytes);
  for (size_t at = 0; at < bytes; at += PIECE) {
    size_t size = std::min(PIECE, bytes - at);
    memcpy(c->meeting->data[c->rank], static_cast<const char *>(mine) + at, size);
    if (!meet(c)) return ncclRemoteError;
    take(at, size);
    if (!meet(c)) return ncclRemoteError;
  }
  return ncclSuccess;
}

}  // namespace

EXPORT Result ncclGetVersion(int *version) { return *version = 22700, ncclSuccess; }
EXPORT const char *ncclGetErrorString(Result) { return "refused by the null GPU"; }
EXPORT const char *ncclGetLastError(Communicator *) { return ""; }
EXPORT Result ncclGetUniqueId(UniqueId *id) {
  static std::atomic<int> made{0};
  return snprintf(id->internal, sizeof id->internal, "%d-%d", getpid(), ++made), ncclSuccess;
}
EXPORT Result ncclCommInitRankConfig(Communicator **comm, int ranks, UniqueId id, int rank, void *) {
  return *comm = new Communicator{rank, ranks, open_meeting(id.internal)}, ncclSuccess;
}
EXPORT Result ncclCommInitRank(Communicator **comm, int ranks, UniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}
EXPORT Result ncclCommInitRankScalable(Communicator **comm, int ranks, int rank, int, UniqueId *ids,
                                             void *config) {
  return ncclCommInitRankConfig(comm, ranks, ids[0], rank, config);
}
EXPORT Result ncclCommGetAsyncError(Communicator *, Result *error) { return *error = ncclSuccess; }
EXPORT Result ncclCommCount(const Communicator *c, int *n) {
  return *n = c->ranks, ncclSuccess;
}
EXPORT Result ncclCommUserRank(const Communicator *c, int *rank) {
  return *rank = c->rank, ncclSuccess;
}
EXPORT Result ncclAllReduce(const void *in, void *out, size_t n, DataType type, int,
                                  Communicator *c, void *) {
  size_t width = get_width(type);
  return exchange(c, in, n * width, [=](size_t at, size_t size) {
    char *sum = static_cast<char *>(out) + at;
    memcpy(sum, c->meeting->data[0], size);
    for (int rank = 1; rank < c->ranks; rank++) add_numbers(sum, c->meeting->data[rank], size / width, type);
  });
}
EXPORT Result ncclBroadcast(const void *in, void *out, size_t n, DataType type, int root, Communicator *c, void *) {
  return exchange(c, in, n * get_width(type), [=](size_t at, size_t size) {
    memcpy(static_cast<char *>(out) + at, c->meeting->data[root], size);
  });
}
EXPORT Result ncclBcast(void *p, size_t n, DataType type, int root, Communicator *c, void *stream) {
  return ncclBroadcast(p, p, n, type, root, c, stream);
}
EXPORT Result ncclAllGather(const void *in, void *out, size_t n, DataType type, Communicator *c, void *) {
  size_t bytes = n * get_width(type);
  return exchange(c, in, bytes, [=](size_t at, size_t size) {
    for (int rank = 0; rank < c->ranks; rank++)
      memcpy(static_cast<char *>(out) + rank * bytes + at, c->meeting->data[rank], size);
  });
}
