/* Executes translated PTX: threads of a block are fibers that take turns, from one place where they meet to the next.

   Orders of threads: ascending, descending, or another one after every meeting. With CHECKED, every access to memory is compared
   with those of other threads since the last barrier: two of them to one place, one of which writes, are a race, as nothing says
   which comes first. With COUNTED, instructions of the first thread of each team are counted by kind (translate.KINDS). Included before the translation is compiled; `kernel` follows. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

typedef struct {
  uint32_t tid[3], ntid[3], ctaid[3], nctaid[3];
  int done, at, turn; /* at: the meeting it waits at; turn: which of two exchanges it uses next */
  long counts[6];
  ucontext_t context;
} Thread;

enum { WARP = 1024, STACK = 1 << 23 }; /* every register is a variable on it */
static ucontext_t home;
static Thread *running;
static uint32_t exchange[2][WARP];
static char **arguments;

enum { PLACES = 1 << 16 };
static char skipped[PLACES]; /* barriers that are left out, to see whether that is noticed */
static long barriers, reads, writes, counted[6];
#ifdef COUNTED
#define COUNTS(kind) t->counts[kind]++;
#else
#define COUNTS(kind)
#endif

static void wait_at(Thread *t, int place) { t->at = place; swapcontext(&t->context, &home); }

#define MEET(place) if (!skipped[place]) wait_at(t, place)
#define SHUFFLE(target, value, far, place) \
  { uint32_t *slots = exchange[t->turn]; t->turn ^= 1; slots[t->tid[0]] = (value); wait_at(t, -2 - (place)); target = slots[t->tid[0] ^ (far)]; }

/* Races. One entry for each word that was touched since the last barrier of its block. */
typedef struct { uint64_t key; uint32_t epoch, writer, reader; } Touched;
enum { SLOTS = 1 << 20, SEVERAL = 0xFFFFFFFF };
static Touched *touched;
static uint32_t epoch = 1;
static long races, first_race;

/* Memory that a launch may touch beside its own stacks; what is outside counts as a stray access. */
enum { REGIONS = 256 };
static char *region[REGIONS], *region_end[REGIONS];
static int regions;
static long strays, first_stray;
static char *stacks, *stacks_end;
void allow(int count, char **begin, long *bytes) {
  regions = count < REGIONS ? count : REGIONS;
  for (int k = 0; k < regions; k++) { region[k] = begin[k]; region_end[k] = begin[k] + bytes[k]; }
}
typedef struct { char *begin; long bytes; } Constant;
static Constant constants[]; /* of the PTX; the last is empty */
static int allowed(char *place, int size) {
  static int last = 0;
  if (place >= stacks && place + size <= stacks_end) return 1;
  if (last < regions && place >= region[last] && place + size <= region_end[last]) return 1;
  for (last = 0; last < regions; last++)
    if (place >= region[last] && place + size <= region_end[last]) return 1;
  for (Constant *one = constants; one->bytes; one++)
    if (place >= one->begin && place + size <= one->begin + one->bytes) return 1;
  return 0;
}

static void touch(Thread *t, char *place, int size, int line, int writing) {
  if (!allowed(place, size) && !strays++) first_stray = line;
  uint32_t me = t->tid[0] + 1;
  for (uint64_t word = (uint64_t)place >> (size < 4 ? 0 : 2), last = ((uint64_t)place + size - 1) >> (size < 4 ? 0 : 2); word <= last; word++) {
    uint64_t key = word << 1 | (size < 4), slot = (key * 0x9E3779B97F4A7C15ULL) >> 44;
    while (touched[slot].epoch == epoch && touched[slot].key != key) slot = (slot + 1) & (SLOTS - 1);
    Touched *one = &touched[slot];
    if (one->epoch != epoch) { one->epoch = epoch; one->key = key; one->writer = one->reader = 0; }
    int clash = (one->writer && one->writer != me) || (writing && one->reader && one->reader != me);
    if (clash && !races++) first_race = line;
    if (writing) one->writer = me;
    else one->reader = one->reader == 0 || one->reader == me ? me : SEVERAL;
  }
}
#ifdef CHECKED
#define READS(place, size, line) { reads++; touch(t, place, size, line, 0); }
#define WRITES(place, size, line) { writes++; touch(t, place, size, line, 1); }
#else
#define READS(place, size, line) reads++;
#define WRITES(place, size, line) writes++;
#endif

static uint64_t bits_f64_uint64_t(double x) { uint64_t y; memcpy(&y, &x, 8); return y; }
static int64_t bits_f64_int64_t(double x) { int64_t y; memcpy(&y, &x, 8); return y; }
static uint32_t bits_f32_uint32_t(float x) { uint32_t y; memcpy(&y, &x, 4); return y; }
static int32_t bits_f32_int32_t(float x) { int32_t y; memcpy(&y, &x, 4); return y; }
static double as_f64(uint64_t x) { double y; memcpy(&y, &x, 8); return y; }
static float as_f32(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
static double coarse(double x) { return as_f64(bits_f64_uint64_t(x) & 0xFFFFFFFF00000000ULL); }
static uint32_t leading_zeros(uint64_t x, int width) { return x == 0 ? width : __builtin_clzll(x) - (64 - width); }
static uint64_t field_mask(uint32_t length) { return length >= 64 ? ~0ULL : (1ULL << length) - 1; }
static uint64_t inserted(uint64_t a, uint64_t b, uint32_t place, uint32_t length) {
  uint64_t mask = field_mask(length) << place; return (b & ~mask) | (a << place & mask);
}
static uint64_t extracted(uint64_t a, uint32_t place, uint32_t length) { return a >> place & field_mask(length); }
static uint32_t carry_add(uint32_t a, uint32_t b, uint32_t *carry, int takes, int keeps) {
  uint64_t sum = (uint64_t)a + b + (takes ? *carry : 0); if (keeps) *carry = sum >> 32; return sum;
}
static uint32_t carry_sub(uint32_t a, uint32_t b, uint32_t *carry, int takes, int keeps) {
  uint64_t rest = (uint64_t)a - b - (takes ? *carry : 0); if (keeps) *carry = rest >> 32 & 1; return rest;
}
/* Conversions of floats end at the limits, and at zero for NaN, as the hardware's do. */
static int32_t to_s32(double x) { return isnan(x) ? 0 : x <= INT32_MIN ? INT32_MIN : x >= INT32_MAX ? INT32_MAX : (int32_t)x; }
static uint32_t to_u32(double x) { return isnan(x) || x <= 0 ? 0 : x >= UINT32_MAX ? UINT32_MAX : (uint32_t)x; }
static int64_t to_s64(double x) { return isnan(x) ? 0 : x <= -0x1p63 ? INT64_MIN : x >= 0x1p63 ? INT64_MAX : (int64_t)x; }
static uint64_t to_u64(double x) { return isnan(x) || x <= 0 ? 0 : x >= 0x1p64 ? UINT64_MAX : (uint64_t)x; }

static void kernel(Thread *t, char **P);
static void run(void) { Thread *t = running; kernel(t, arguments); t->done = 1; swapcontext(&t->context, &home); }

enum { ASCENDING, DESCENDING, RANDOM };
static uint64_t state;
static int drawn(int below) { state = state * 6364136223846793005ULL + 1442695040888963407ULL; return (int)((state >> 33) % below); }

/* Run all blocks, of width × height threads, one after the other. Returns 0, or 1 where threads met at different places.
   `report` gets barriers, reads, writes, races and the line of the first one, stray accesses and the line of the first one, then counts. */
int launch(int blocks, int width, int height, char **given, int order, uint64_t seed, int left_out, int *places, long *report) {
  int count = width * height, failed = 0;
  Thread *threads = calloc(count, sizeof *threads);
  stacks = malloc((size_t)count * STACK); stacks_end = stacks + (size_t)count * STACK;
  int *turns = malloc(count * sizeof *turns);
  if (!touched) touched = calloc(SLOTS, sizeof *touched);
  memset(skipped, 0, sizeof skipped);
  for (int k = 0; k < left_out; k++) skipped[places[k]] = 1;
  arguments = given; state = seed; barriers = reads = writes = races = first_race = strays = first_stray = 0;
  memset(counted, 0, sizeof counted);
  for (int block = 0; block < blocks && !failed; block++) {
    epoch++;
    for (int k = 0; k < count; k++) {
      Thread *t = &threads[k];
      memset(t, 0, sizeof *t);
      t->tid[0] = k % width; t->tid[1] = k / width; t->ctaid[0] = block; t->nctaid[0] = blocks;
      t->ntid[0] = width; t->ntid[1] = height; t->ntid[2] = t->nctaid[1] = t->nctaid[2] = 1;
      getcontext(&t->context);
      t->context.uc_stack.ss_sp = stacks + (size_t)k * STACK; t->context.uc_stack.ss_size = STACK; t->context.uc_link = 0;
      makecontext(&t->context, run, 0);
      turns[k] = order == DESCENDING ? count - 1 - k : k;
    }
    for (int left = count; left && !failed;) {
      int place = -1;
      left = 0;
      if (order == RANDOM)
        for (int k = count - 1; k > 0; k--) { int j = drawn(k + 1), kept = turns[k]; turns[k] = turns[j]; turns[j] = kept; }
      for (int k = 0; k < count; k++) {
        running = &threads[turns[k]];
        if (running->done) continue;
        swapcontext(&home, &running->context);
        if (running->done) {
          if (running->tid[0] == 0) for (int kind = 0; kind < 6; kind++) counted[kind] += running->counts[kind];
          failed |= left > 0; /* others wait for it */
          continue;
        }
        failed |= (left > 0 && running->at != place) || left != k;
        place = running->at;
        left++;
      }
      if (left && place >= 0) { barriers++; epoch++; }
    }
  }
  long found[7] = {barriers, reads, writes, races, first_race, strays, first_stray};
  memcpy(report, found, sizeof found);
  memcpy(report + 7, counted, sizeof counted);
  free(threads); free(stacks); free(turns);
  return failed;
}
