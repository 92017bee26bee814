/* A libcuda.so for tests: one GPU, whose memory is the process's own. Only what RankSlice calls.

   Copies to the GPU are done at once, copies back when somebody waits for the stream; both fail if
   the host's memory is not page-locked. toy_calls() tells the calls since it was asked last, one
   letter each; toy_held() how much has not been given back. toy_fail() makes calls of one letter
   fail with a code from then on; '-' ends that. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, ALREADY_REGISTERED = 712 };
enum { PLACES = 4096, CALLS = 65536 };

typedef struct {
  uint64_t begin, size;
  int flags;
} Place;
typedef struct {
  uint64_t host, device;
  size_t size;
} Copy;

static Place locked[PLACES];
static Copy queue[PLACES];
static int queued, held, contexts;
static unsigned context_flags;
static char calls[CALLS], told[CALLS];
static char failing = '-';
static int failure;
static __thread int is_current;

static int called(char letter) {
  size_t length = strlen(calls);
  if (length + 1 < CALLS) calls[length] = letter;
  return letter == failing ? failure : OK;
}

const char *toy_calls(void) {
  memcpy(told, calls, CALLS);
  memset(calls, 0, CALLS);
  return told;
}
int toy_held(void) { return held + contexts; }
unsigned toy_context_flags(void) { return context_flags; }
int toy_flags_of(int place) { return locked[place].begin ? locked[place].flags : -1; }
void toy_set_context_flags(unsigned flags) { context_flags = flags; }
void toy_fail(char letter, int code) { failing = letter, failure = code; }

int cuInit(unsigned flags) { return called('i'); }

int cuGetErrorName(int code, const char **name) {
  *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_TOY";
  return OK;
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? OK : NO_DEVICE;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = context_flags, *active = contexts > 0;
  return OK;
}

int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
  int code = called('f');
  if (!code) context_flags = flags;
  return code;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  int code = called('c');
  *context = &contexts;
  if (!code) contexts++;
  return code;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  contexts--;
  return called('C');
}

int cuCtxSetCurrent(uint64_t context) {
  is_current = 1;
  return OK;
}

int cuStreamCreate(void **stream, unsigned flags) {
  int code = called('s');
  if (!is_current) return INVALID_VALUE;
  if (!code) *stream = malloc(1), held++;
  return code;
}

int cuStreamEndCapture(uint64_t stream, void **graph) { return called('e'); }

int cuStreamDestroy_v2(uint64_t stream) {
  free((void *)stream), held--;
  return called('S');
}

int cuStreamSynchronize(uint64_t stream) {
  int code = called('w');
  for (int i = 0; i < queued && !code; i++)
    memcpy((void *)queue[i].host, (void *)queue[i].device, queue[i].size);
  queued = 0;
  return code;
}

int cuMemAlloc_v2(void **address, size_t size) {
  int code = called('a');
  if (!code) *address = calloc(1, size), held++;
  return code;
}

int cuMemFree_v2(uint64_t address) {
  free((void *)address), held--;
  return called('A');
}

static int lock(uint64_t begin, size_t size, int flags) {
  for (int i = 0; i < PLACES; i++)
    if (!locked[i].begin) {
      locked[i] = (Place){begin, size, flags};
      held++;
      return OK;
    }
  return OUT_OF_MEMORY;
}

static int unlock(uint64_t begin) {
  for (int i = 0; i < PLACES; i++)
    if (locked[i].begin == begin) {
      locked[i].begin = 0, held--;
      return OK;
    }
  return INVALID_VALUE;
}

int cuMemAllocHost_v2(void **address, size_t size) {
  int code = called('h');
  if (code) return code;
  *address = calloc(1, size);
  return lock((uint64_t)*address, size, -1);
}

int cuMemFreeHost(uint64_t address) {
  called('H');
  free((void *)address);
  return unlock(address);
}

int cuMemHostRegister_v2(uint64_t begin, size_t size, unsigned flags) {
  int code = called('r');
  if (code) return code;
  for (int i = 0; i < PLACES; i++) {
    Place other = locked[i];
    if (other.begin && begin < other.begin + other.size && other.begin < begin + size)
      return ALREADY_REGISTERED;
  }
  return lock(begin, size, flags);
}

int cuMemHostUnregister(uint64_t begin) {
  called('R');
  return unlock(begin);
}

static int is_locked(uint64_t begin, size_t size) {
  for (int i = 0; i < PLACES; i++)
    if (locked[i].begin && locked[i].begin <= begin &&
        begin + size <= locked[i].begin + locked[i].size)
      return 1;
  return 0;
}

int cuMemcpyHtoDAsync_v2(uint64_t device, uint64_t host, size_t size, uint64_t stream) {
  int code = called('<');
  if (code || !is_current || !is_locked(host, size)) return code ? code : INVALID_VALUE;
  memcpy((void *)device, (void *)host, size);
  return OK;
}

int cuMemcpyDtoHAsync_v2(uint64_t host, uint64_t device, size_t size, uint64_t stream) {
  int code = called('>');
  if (code || !is_current || !is_locked(host, size)) return code ? code : INVALID_VALUE;
  queue[queued++] = (Copy){host, device, size};
  return OK;
}
