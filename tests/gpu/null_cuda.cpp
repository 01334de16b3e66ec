// A GPU that computes nothing: the CUDA driver and runtime, and what PyTorch calls of NVIDIA's libraries.
//
// Preloaded into a process, it stands in for libcudart, libcuda, cuBLAS, cuFFT and others. PyTorch's CUDA build,
// Triton's compiler and launcher, the caching allocator and torch.distributed then run as they are on a machine
// without a GPU. Device memory is address space of the host. Copies between device and host copy. Kernels are
// counted by name and do nothing, so results have no meaning. Functions that are not written here or in
// null_nccl.cpp are generated (null_gpu.py): they count their call and return 0, success in each of the libraries.
//
// What a real GPU refuses is refused: launches with an invalid grid, block or shared memory, allocations beyond
// the memory of the card, devices that are not there, and waiting within a graph's capture.

#define cuTensorMapEncodeTiled cuTensorMapEncodeTiled_declared  // with a dozen arguments, none of which is read
#define cuTensorMapEncodeIm2col cuTensorMapEncodeIm2col_declared
#include <cuda.h>
#undef cuTensorMapEncodeTiled
#undef cuTensorMapEncodeIm2col
#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// --------------------------------------------------------------------------------------------------------- the machine

long read_setting(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text ? atol(text) : otherwise;
}

struct Card {
  int capability, multiprocessors, shared_per_block, shared_per_multiprocessor, threads_per_multiprocessor;
};
// CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability"; multiprocessors of an A100, an
// H100, a B200 and an RTX 5090.
const Card CARDS[] = {{80, 108, 166912, 167936, 2048},
                      {90, 132, 232448, 233472, 2048},
                      {100, 148, 232448, 233472, 2048},
                      {120, 170, 101376, 102400, 1536}};
constexpr int MOST_DEVICES = 8;
const int DEVICES = std::min<int>(read_setting("NULL_GPU_COUNT", 1), MOST_DEVICES);
const size_t CAPACITY = read_setting("NULL_GPU_BYTES", 80L << 30);
const size_t CONTEXT = 500 << 20;  // about what a context takes of a real card
const Card CARD = [] {
  long wanted = read_setting("NULL_GPU_CAPABILITY", 90);
  for (const Card &card : CARDS)
    if (card.capability == wanted) return card;
  fprintf(stderr, "null GPU: no card of capability %ld\n", wanted);
  abort();
}();

// ------------------------------------------------------------------------------------------------------------ counting

struct Range {
  size_t size;
  int device;  // -1: pinned memory of the host
};
struct Device {
  bool context = false;
  size_t used = 0, peak = 0;
  long launches = 0, allocations = 0;
};
struct Graph {
  long launches = 0;
};

// Never destroyed: other libraries call to the end of the process.
std::mutex &mutex = *new std::mutex;  // of all that follows
Device devices[MOST_DEVICES];
auto &ranges = *new std::map<uintptr_t, Range>;
auto &counters = *new std::map<std::string, long>;
auto &kernels = *new std::map<std::string, long>;
auto &calls = *new std::map<std::string, long>;
auto &registered = *new std::unordered_map<const void *, std::string>;  // names by the address of the host's function
Graph *captured = nullptr;  // the graph whose capture goes on, into which every launch goes
cudaStream_t captured_stream = nullptr;
void (*watcher)(const char *) = nullptr;

thread_local int current = 0;
thread_local cudaError_t last = cudaSuccess;

void count(const char *what, long much = 1) {
  std::lock_guard<std::mutex> lock(mutex);
  counters[what] += much;
}
// Events that a caller may want to know the origin of are reported one by one; without the lock, as Python is called.
void count_event(const char *what) {
  count(what);
  if (watcher) watcher(what);
}
cudaError_t fail(cudaError_t error) { return last = error; }
Device &use_device() {
  devices[current].context = true;
  return devices[current];
}
const Range *find_range(const void *p) {
  auto after = ranges.upper_bound(reinterpret_cast<uintptr_t>(p));
  if (after == ranges.begin()) return nullptr;
  --after;
  return reinterpret_cast<uintptr_t>(p) < after->first + after->second.size ? &after->second : nullptr;
}
void count_launch(const std::string &name, const char *kind) {
  std::lock_guard<std::mutex> lock(mutex);
  if (captured) {
    captured->launches++;
    return;
  }
  counters["launches"]++, counters[kind]++, kernels[name]++;
  use_device().launches++;
}
std::string demangle(const std::string &name) {
  int status = 0;
  char *plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string found = status == 0 ? plain : name;
  free(plain);
  return found;
}
std::string quote(const std::string &text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}
std::string write_counts(const std::map<std::string, long> &counts) {
  std::map<std::string, long> plain;
  for (auto &[name, value] : counts) plain[demangle(name)] += value;
  std::string text = "{";
  for (auto &[name, value] : plain) text += (text.size() > 1 ? ", " : "") + quote(name) + ": " + std::to_string(value);
  return text + "}";
}

}  // namespace

EXPORT void null_gpu_reset() {
  std::lock_guard<std::mutex> lock(mutex);
  counters.clear(), kernels.clear(), calls.clear();
  for (Device &device : devices) device.peak = device.used, device.launches = device.allocations = 0;
}

// All counters as JSON, valid until the next call.
EXPORT const char *null_gpu_report() {
  static std::string &text = *new std::string;
  std::lock_guard<std::mutex> lock(mutex);
  text = "{\"counters\": " + write_counts(counters) + ", \"kernels\": " + write_counts(kernels) +
         ", \"calls\": " + write_counts(calls) + ", \"devices\": [";
  for (int i = 0; i < DEVICES; i++) {
    const Device &device = devices[i];
    text += (i ? ", " : "") + write_counts({{"context", device.context},
                                            {"peak", device.peak},
                                            {"launches", device.launches},
                                            {"allocations", device.allocations}});
  }
  text += "]}";
  return text.c_str();
}

EXPORT void null_gpu_count(const char *what, long much) { count(what, much); }

// Call `function` at each copy and wait, in the thread that makes it.
EXPORT void null_gpu_watch(void (*function)(const char *)) { watcher = function; }

// The body of generated functions, `computes` for those that start work on the device.
EXPORT int null_gpu_call(const char *name, int computes) {
  if (computes) count_launch(name, "library launches");
  std::lock_guard<std::mutex> lock(mutex);
  calls[name]++;
  return 0;
}

// ------------------------------------------------------------------------------------------------------------- devices

EXPORT cudaError_t cudaGetDeviceCount(int *n) { return *n = DEVICES, cudaSuccess; }
EXPORT cudaError_t cudaGetDevice(int *device) { return *device = current, cudaSuccess; }
EXPORT cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= DEVICES) return fail(cudaErrorInvalidDevice);
  std::lock_guard<std::mutex> lock(mutex);
  current = device;
  use_device();  // since CUDA 12 this makes the context
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
  if (device < 0 || device >= DEVICES) return fail(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "Null GPU");
  p->uuid.bytes[0] = static_cast<char>(device + 1);
  p->pciBusID = device + 1;
  p->major = CARD.capability / 10, p->minor = CARD.capability % 10;
  p->totalGlobalMem = CAPACITY, p->l2CacheSize = 50 << 20, p->memoryBusWidth = 5120;
  p->multiProcessorCount = CARD.multiprocessors, p->warpSize = 32;
  p->maxThreadsPerBlock = 1024, p->maxThreadsPerMultiProcessor = CARD.threads_per_multiprocessor;
  p->maxBlocksPerMultiProcessor = 32;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536, p->totalConstMem = 65536;
  p->sharedMemPerBlock = 49152, p->sharedMemPerBlockOptin = CARD.shared_per_block;
  p->sharedMemPerMultiprocessor = CARD.shared_per_multiprocessor;
  p->textureAlignment = 512, p->texturePitchAlignment = 32, p->surfaceAlignment = 512, p->memPitch = 2147483647;
  p->asyncEngineCount = 3, p->concurrentKernels = p->canMapHostMemory = p->unifiedAddressing = p->managedMemory = 1;
  p->cooperativeLaunch = p->streamPrioritiesSupported = p->memoryPoolsSupported = 1;
  p->clusterLaunch = CARD.capability >= 90;
  return cudaSuccess;
}
static int get_attribute(int attribute) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: return 2147483647;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 49152;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return CARD.shared_per_block;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return CARD.shared_per_multiprocessor;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
    case cudaDevAttrTotalConstantMemory: return 65536;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrClockRate: return 1980000;
    case cudaDevAttrMemoryClockRate: return 2619000;
    case cudaDevAttrGlobalMemoryBusWidth: return 5120;
    case cudaDevAttrL2CacheSize: return 50 << 20;
    case cudaDevAttrTextureAlignment: return 512;
    case cudaDevAttrMultiProcessorCount: return CARD.multiprocessors;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return CARD.threads_per_multiprocessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return 32;
    case cudaDevAttrComputeCapabilityMajor: return CARD.capability / 10;
    case cudaDevAttrComputeCapabilityMinor: return CARD.capability % 10;
    case cudaDevAttrAsyncEngineCount: return 3;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported: return 1;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: return CARD.capability >= 90;
    default: return 0;
  }
}
EXPORT cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
  return *value = get_attribute(attribute), cudaSuccess;
}
EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) { return *can = 1, cudaSuccess; }
EXPORT cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device) {
  return snprintf(text, size, "0000:%02d:00.0", device + 1), cudaSuccess;
}
EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}
EXPORT cudaError_t cudaDriverGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
EXPORT cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
EXPORT cudaError_t cudaGetLastError() { return std::exchange(last, cudaSuccess); }
EXPORT cudaError_t cudaPeekAtLastError() { return last; }
EXPORT const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    default: return "cudaErrorInvalidValue";
  }
}
EXPORT const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : cudaGetErrorName(error);
}
EXPORT cudaError_t cudaDeviceSynchronize() {
  count_event("device waits");
  return captured ? fail(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

// -------------------------------------------------------------------------------------------------------------- memory

static void *reserve(size_t size) {
  void *p = mmap(nullptr, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}
static bool release(void *p) {
  auto found = ranges.find(reinterpret_cast<uintptr_t>(p));
  if (found == ranges.end()) return false;
  if (found->second.device >= 0) devices[found->second.device].used -= found->second.size;
  munmap(p, found->second.size + 1);
  ranges.erase(found);
  return true;
}
EXPORT cudaError_t cudaMalloc(void **p, size_t size) {
  std::lock_guard<std::mutex> lock(mutex);
  Device &device = use_device();
  if (device.used + size + CONTEXT > CAPACITY || !(*p = reserve(size))) return fail(cudaErrorMemoryAllocation);
  ranges[reinterpret_cast<uintptr_t>(*p)] = {size, current};
  device.used += size;
  device.peak = std::max(device.peak, device.used);
  device.allocations++;
  counters["allocations"]++;
  return cudaSuccess;
}
EXPORT cudaError_t cudaFree(void *p) {
  std::lock_guard<std::mutex> lock(mutex);
  return !p || release(p) ? cudaSuccess : fail(cudaErrorInvalidValue);
}
EXPORT cudaError_t cudaMallocAsync(void **p, size_t size, cudaStream_t) { return cudaMalloc(p, size); }
EXPORT cudaError_t cudaFreeAsync(void *p, cudaStream_t) { return cudaFree(p); }
EXPORT cudaError_t cudaHostAlloc(void **p, size_t size, unsigned) {
  std::lock_guard<std::mutex> lock(mutex);
  use_device();
  if (!(*p = reserve(size))) return fail(cudaErrorMemoryAllocation);
  ranges[reinterpret_cast<uintptr_t>(*p)] = {size, -1};
  counters["pinned allocations"]++;
  return cudaSuccess;
}
EXPORT cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }
EXPORT cudaError_t cudaHostRegister(void *p, size_t size, unsigned) {
  std::lock_guard<std::mutex> lock(mutex);
  return ranges[reinterpret_cast<uintptr_t>(p)] = {size, -1}, cudaSuccess;
}
EXPORT cudaError_t cudaHostUnregister(void *p) {
  std::lock_guard<std::mutex> lock(mutex);
  return ranges.erase(reinterpret_cast<uintptr_t>(p)), cudaSuccess;
}
EXPORT cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  std::lock_guard<std::mutex> lock(mutex);
  *total = CAPACITY, *free = CAPACITY - CONTEXT - use_device().used;
  return cudaSuccess;
}
EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *found, const void *p) {
  std::lock_guard<std::mutex> lock(mutex);
  memset(found, 0, sizeof *found);
  const Range *range = find_range(p);
  bool host = range && range->device < 0;
  found->type = !range ? cudaMemoryTypeUnregistered : host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  found->device = range ? std::max(range->device, 0) : -1;
  found->devicePointer = const_cast<void *>(p);
  found->hostPointer = host ? const_cast<void *>(p) : nullptr;
  return cudaSuccess;
}
// Between device and host all is copied. Within the device small copies are, such as of sizes; large ones would take
// real memory for numbers that no kernel has computed.
constexpr size_t COPIED_ON_DEVICE = 1 << 16;
static cudaError_t copy(void *to, const void *from, size_t size) {
  const Range *target, *source;
  {
    std::lock_guard<std::mutex> lock(mutex);
    use_device();
    target = find_range(to), source = find_range(from);
  }
  bool onto = target && target->device >= 0, off = source && source->device >= 0;
  if (onto && off) {
    count("copies on device");
    count("bytes on device", size);
    if (size <= COPIED_ON_DEVICE) memmove(to, from, size);
  } else if (off) {
    // A single byte is the answer to a question, as whether all numbers are finite; to the numbers that nothing has
    // computed, the answer is yes.
    if (size == 1) *static_cast<char *>(to) = 1;
    else memcpy(to, from, size);
    count("bytes to host", size);
    count_event("copies to host");
  } else {
    memcpy(to, from, size);
    count("bytes to device", size);
    count_event(source ? "copies to device" : "pageable copies to device");
  }
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind) {
  return captured ? fail(cudaErrorStreamCaptureUnsupported) : copy(to, from, size);
}
EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind, cudaStream_t) {
  return copy(to, from, size);
}
EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t size, cudaStream_t) {
  return copy(to, from, size);
}
EXPORT cudaError_t cudaMemsetAsync(void *p, int value, size_t size, cudaStream_t) {
  count("fills");
  if (size <= COPIED_ON_DEVICE) memset(p, value, size);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemset(void *p, int value, size_t size) { return cudaMemsetAsync(p, value, size, nullptr); }
EXPORT cudaError_t cudaGetSymbolAddress(void **p, const void *) {
  static char constants[1 << 16];
  return *p = constants, cudaSuccess;
}

// --------------------------------------------------------------------------------------------- streams, events, graphs

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  std::lock_guard<std::mutex> lock(mutex);
  use_device();
  return *stream = static_cast<cudaStream_t>(malloc(1)), cudaSuccess;
}
EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) { return cudaStreamCreate(stream); }
EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) {
  return cudaStreamCreate(stream);
}
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) { return free(stream), cudaSuccess; }
EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t, int *priority) { return *priority = 0, cudaSuccess; }
EXPORT cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  count_event("stream waits");
  return captured && stream == captured_stream ? fail(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
// An event is the host's clock at its record: times are those of the host.
static double read_clock() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  return *event = reinterpret_cast<cudaEvent_t>(new double(0)), cudaSuccess;
}
EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return delete reinterpret_cast<double *>(event), cudaSuccess;
}
EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  return *reinterpret_cast<double *>(event) = read_clock(), cudaSuccess;
}
EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t) { return count_event("event waits"), cudaSuccess; }
EXPORT cudaError_t cudaEventElapsedTime(float *time, cudaEvent_t from, cudaEvent_t to) {
  *time = *reinterpret_cast<double *>(to) - *reinterpret_cast<double *>(from);
  return cudaSuccess;
}
EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void *data) {
  return function(data), cudaSuccess;
}
EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  bool active = captured && stream == captured_stream;
  return *status = active ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone, cudaSuccess;
}
EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                            unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **,
                                            const cudaGraphEdgeData **, size_t *dependencies) {
  cudaStreamIsCapturing(stream, status);
  if (id) *id = reinterpret_cast<uintptr_t>(captured);
  if (graph) *graph = reinterpret_cast<cudaGraph_t>(captured);
  if (dependencies) *dependencies = 0;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!stream || captured) return fail(cudaErrorStreamCaptureUnsupported);
  captured = new Graph, captured_stream = stream;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *graph) {
  std::lock_guard<std::mutex> lock(mutex);
  return *graph = reinterpret_cast<cudaGraph_t>(std::exchange(captured, nullptr)), cudaSuccess;
}
EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *ready, cudaGraph_t graph, unsigned long long) {
  return *ready = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph *>(graph))), cudaSuccess;
}
EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *nodes) {
  return *nodes = reinterpret_cast<Graph *>(graph)->launches, cudaSuccess;
}
EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  std::lock_guard<std::mutex> lock(mutex);
  counters["graph launches"]++;
  counters["launches in graphs"] += reinterpret_cast<Graph *>(graph)->launches;
  use_device().launches++;
  return cudaSuccess;
}

// ------------------------------------------------------------------------------------------------------------- kernels

static bool is_valid_launch(const std::string &name, dim3 grid, dim3 block, size_t shared) {
  size_t threads = static_cast<size_t>(block.x) * block.y * block.z;
  bool valid = grid.x && grid.y && grid.z && grid.x <= 2147483647u && grid.y <= 65535 && grid.z <= 65535 && threads &&
               threads <= 1024 && block.z <= 64 && shared <= static_cast<size_t>(CARD.shared_per_block);
  if (!valid)
    fprintf(stderr, "null GPU: invalid launch of %s: grid %u %u %u, block %u %u %u, %zu bytes shared\n",
            demangle(name).c_str(), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared);
  return valid;
}
static bool launch(const std::string &name, dim3 grid, dim3 block, size_t shared, const char *kind) {
  if (!is_valid_launch(name, grid, block, shared)) return count("invalid launches"), false;
  return count_launch(name, kind), true;
}
// The one kernel that does something: PyTorch fills small tensors with zeros, as buffers in which processes sum what
// they tell each other. Its arguments are a count, a functor that holds the value, and an array of one pointer.
static void fill_with_zeros(const std::string &name, void **arguments) {
  size_t at = name.find("FillFunctorI");
  if (at == std::string::npos || name.find("vectorized_elementwise_kernel") == std::string::npos) return;
  static const std::map<char, size_t> widths = {{'b', 1}, {'h', 1}, {'i', 4}, {'f', 4}, {'l', 8}, {'d', 8}};
  auto width = widths.find(name[at + strlen("FillFunctorI")]);
  if (width == widths.end()) return;
  size_t size = *static_cast<int *>(arguments[0]) * width->second;
  const char zeros[8] = {};
  if (size <= COPIED_ON_DEVICE && !memcmp(arguments[1], zeros, width->second))
    memset(*static_cast<void **>(arguments[2]), 0, size);
}
static cudaError_t launch_registered(const void *function, dim3 grid, dim3 block, size_t shared, void **arguments) {
  auto found = registered.find(function);
  const std::string name = found == registered.end() ? "unnamed" : found->second;
  fill_with_zeros(name, arguments);
  return launch(name, grid, block, shared, "library launches") ? cudaSuccess : fail(cudaErrorInvalidConfiguration);
}
struct Configuration {
  dim3 grid, block;
  size_t shared;
  void *stream;
};
static thread_local std::vector<Configuration> configurations;

EXPORT void **__cudaRegisterFatBinary(void *) {
  static void *handle[8];
  return handle;
}
EXPORT void __cudaRegisterFatBinaryEnd(void **) {}
EXPORT void __cudaUnregisterFatBinary(void **) {}
EXPORT char __cudaInitModule(void **) { return 0; }
EXPORT void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
EXPORT void __cudaRegisterFunction(void **, const char *function, char *, const char *name, int, uint3 *, uint3 *,
                                   dim3 *, dim3 *, int *) {
  registered[function] = name;
}
EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
  return *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void *>(function)), cudaSuccess;
}
EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
  return configurations.push_back({grid, block, shared, stream}), 0;
}
EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  Configuration given = configurations.back();
  configurations.pop_back();
  *grid = given.grid, *block = given.block, *shared = given.shared, *static_cast<void **>(stream) = given.stream;
  return cudaSuccess;
}
EXPORT cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                    cudaStream_t) {
  return launch_registered(function, grid, block, shared, arguments);
}
EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                      cudaStream_t) {
  return launch_registered(function, grid, block, shared, arguments);
}
EXPORT cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                               cudaStream_t) {
  return launch_registered(function, grid, block, shared, arguments);
}
EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *function, void **arguments) {
  return launch_registered(function, c->gridDim, c->blockDim, c->dynamicSmemBytes, arguments);
}
EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *found, const void *) {
  memset(found, 0, sizeof *found);
  found->binaryVersion = found->ptxVersion = CARD.capability;
  found->maxThreadsPerBlock = 1024, found->numRegs = 32, found->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}
EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *, int threads,
                                                                         size_t, unsigned) {
  return *blocks = std::clamp(CARD.threads_per_multiprocessor / std::max(threads, 1), 1, 32), cudaSuccess;
}
EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                                 size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}
static int answer_unknown() { return 0; }
EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                                    cudaDriverEntryPointQueryResult *found) {
  void *known = dlsym(RTLD_DEFAULT, name);
  *function = known ? known : reinterpret_cast<void *>(answer_unknown);
  if (found) *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// ------------------------------------------------------------------------------------ the driver, for Triton and NVRTC

struct Function {
  std::string name;
};
static CUresult launch_loaded(CUfunction function, dim3 grid, dim3 block, size_t shared) {
  bool done = launch(reinterpret_cast<Function *>(function)->name, grid, block, shared, "compiled launches");
  return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUcontext get_context() { return reinterpret_cast<CUcontext>(&devices[current]); }

EXPORT CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuDriverGetVersion(int *version) { return *version = CUDA_VERSION, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetCount(int *n) { return *n = DEVICES, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGet(CUdevice *device, int number) { return *device = number, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice) {
  return *value = get_attribute(attribute), CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  devices[device].context = true;
  return *context = reinterpret_cast<CUcontext>(&devices[device]), CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  std::lock_guard<std::mutex> lock(mutex);
  return *flags = 0, *active = devices[device].context, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext *context) { return *context = get_context(), CUDA_SUCCESS; }
EXPORT CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetDevice(CUdevice *device) { return *device = current, CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetLimit(size_t *value, CUlimit) { return *value = 1 << 20, CUDA_SUCCESS; }
EXPORT CUresult cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }
EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *) {
  count("modules");
  return *module = reinterpret_cast<CUmodule>(malloc(1)), CUDA_SUCCESS;
}
EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned, CUjit_option *, void **) {
  return cuModuleLoadData(module, image);
}
EXPORT CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule, const char *name) {
  return *function = reinterpret_cast<CUfunction>(new Function{name}), CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction) {
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
EXPORT CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, CUstream, void **, void **) {
  return launch_loaded(function, {gx, gy, gz}, {bx, by, bz}, shared);
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **, void **) {
  return launch_loaded(function, {c->gridDimX, c->gridDimY, c->gridDimZ}, {c->blockDimX, c->blockDimY, c->blockDimZ},
                       c->sharedMemBytes);
}
EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                          unsigned by, unsigned bz, unsigned shared, CUstream, void **) {
  return launch_loaded(function, {gx, gy, gz}, {bx, by, bz}, shared);
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction, int, size_t) {
  return *blocks = 2, CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction, const CUlaunchConfig *) {
  return *clusters = 1, CUDA_SUCCESS;
}
EXPORT CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr p) {
  std::lock_guard<std::mutex> lock(mutex);
  const Range *range = find_range(reinterpret_cast<void *>(p));
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) *static_cast<CUdeviceptr *>(value) = p;
  else *static_cast<int *>(value) = attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? std::max(range->device, 0) : 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuPointerGetAttributes(unsigned, CUpointer_attribute *, void **, CUdeviceptr) { return CUDA_SUCCESS; }
EXPORT CUresult cuGetErrorString(CUresult, const char **text) {
  return *text = "refused by the null GPU", CUDA_SUCCESS;
}
EXPORT CUresult cuTensorMapEncodeTiled() { return CUDA_SUCCESS; }
EXPORT CUresult cuTensorMapEncodeIm2col() { return CUDA_SUCCESS; }
EXPORT CUresult cuGetExportTable(const void **, const CUuuid *) { return CUDA_ERROR_NOT_FOUND; }

// ------------------------------------------------------------------------------------- libraries: what returns a value

EXPORT int cublasGetMathMode(void *, int *mode) { return *mode = 0; }
EXPORT int cublasGetPointerMode_v2(void *, int *mode) { return *mode = 0; }
EXPORT size_t cublasLtGetVersion() { return 130000; }
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *, void *, void *, void *, void *, void *, void *, int, void *results,
                                          int *n) {
  memset(results, 0, 96);  // one cublasLtMatmulHeuristicResult_t
  return *n = 1, 0;
}
EXPORT int cufftCreate(int *handle) {
  static std::atomic<int> made{0};
  return *handle = ++made, 0;
}
EXPORT int cufftXtMakePlanMany(int, int, long long *, long long *, long long, long long, int, long long *, long long,
                               long long, int, long long, size_t *workspace, int) {
  return *workspace = 0, 0;
}
