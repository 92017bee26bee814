/* A libnvidia-ml.so for tests: a board with two GPUs. Only what RankSlice asks of NVIDIA's is here.

   TOY_NVML tells what it is like, in letters: "c" it has counters of energy, 20 W a GPU; "p" it
   tells the power, 15 W a GPU; "m" the memory in use, 300 MB a GPU at first and 150 MB more each
   time that it is asked; "l" it lists this process, with 811 MB on the second GPU. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3 };

typedef struct {
  uint64_t total, free, used;
} Memory;
typedef struct {
  unsigned pid;
  uint64_t used;
  unsigned gpu_instance, compute_instance;
} Process;

static char gpus[2];
static unsigned asked;

static int has(char letter) {
  const char *told = getenv("TOY_NVML");
  return told && strchr(told, letter);
}

static int is_second(void *gpu) { return gpu == &gpus[1]; }

int nvmlInit_v2(void) { return OK; }

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = has('n') ? 0 : 2;
  return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) {
  if (index > 1) return INVALID;
  *gpu = &gpus[index];
  return OK;
}

int nvmlDeviceGetName(void *gpu, char *name, unsigned length) {
  if (length < 8) return INVALID;
  strcpy(name, is_second(gpu) ? "Toy two" : "Toy one");
  return OK;
}

int nvmlDeviceGetTotalEnergyConsumption(void *gpu, uint64_t *millijoules) {
  struct timespec now;
  if (!has('c')) return NOT_SUPPORTED;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *millijoules = 20 * (1000 * (uint64_t)now.tv_sec + now.tv_nsec / 1000000);
  return OK;
}

int nvmlDeviceGetPowerUsage(void *gpu, unsigned *milliwatts) {
  *milliwatts = 15000;
  return has('p') ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetUtilizationRates(void *gpu, unsigned *rates) {
  rates[0] = is_second(gpu) ? 75 : 25;
  rates[1] = 99;
  return has('u') ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetTemperature(void *gpu, unsigned sensor, unsigned *celsius) {
  *celsius = is_second(gpu) ? 61 : 41;
  return has('u') && sensor == 0 ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(void *gpu, Memory *memory) {
  if (!has('m')) return NOT_SUPPORTED;
  memory->total = 80000000000;
  memory->used = 300000000 + 150000000 * (uint64_t)(asked++ / 2);
  memory->free = memory->total - memory->used;
  return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, Process *processes) {
  *count = 0;
  if (!has('l')) return has('m') ? OK : NOT_SUPPORTED;
  processes[(*count)++] = (Process){1, 5000000, 0, 0};
  if (is_second(gpu)) processes[(*count)++] = (Process){getpid(), 811000000, 0, 0};
  return OK;
}
