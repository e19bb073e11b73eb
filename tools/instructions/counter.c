// A plugin of QEMU's user mode that counts the executed instructions by the address and size of their block. The program
// resets the counts and writes them to a file with a system call that the kernel refuses: getpriority with a first
// argument that does not exist.
//
// The interface is version 1 (QEMU 5 to 8). Debian has no package with its header, so what is used is declared here.
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
typedef uint64_t Id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
void qemu_plugin_register_vcpu_tb_trans_cb(Id, void (*)(Id, struct qemu_plugin_tb*));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb*);
struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb*, size_t);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn*);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb*);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb*, int operation, void* at, uint64_t operand);
typedef void (*OnCall)(
    Id, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
void qemu_plugin_register_vcpu_syscall_cb(Id, OnCall);
EXPORT int qemu_plugin_version = 1;

enum { kAdd = 0, kPerChunk = 1 << 16, kChunks = 1 << 10 };
static const uint64_t kReset = 0x7d0000, kWrite = 0x7d0001;

struct Block {  // a sequence of instructions without a jump
  uint64_t address, bytes, instructions, executed;
};
static struct Block* chunks[kChunks];  // stable addresses
static size_t blocks;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int64_t number_of_call;
static const char* output;

static void translated(Id id, struct qemu_plugin_tb* code) {
  (void)id;
  pthread_mutex_lock(&mutex);
  if (blocks < (size_t)kPerChunk * kChunks) {
    struct Block** chunk = &chunks[blocks / kPerChunk];
    if (!*chunk) *chunk = calloc(kPerChunk, sizeof **chunk);
    struct Block* block = *chunk + blocks++ % kPerChunk;
    block->address = qemu_plugin_tb_vaddr(code);
    block->instructions = qemu_plugin_tb_n_insns(code);
    for (size_t i = 0; i < block->instructions; i++)
      block->bytes += qemu_plugin_insn_size(qemu_plugin_tb_get_insn(code, i));
    qemu_plugin_register_vcpu_tb_exec_inline(code, kAdd, &block->executed, 1);
  }
  pthread_mutex_unlock(&mutex);
}

static void called(
    Id id, unsigned cpu, int64_t number, uint64_t first, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
    uint64_t g, uint64_t h) {
  (void)id, (void)cpu, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
  if (number != number_of_call || (first != kReset && first != kWrite)) return;
  pthread_mutex_lock(&mutex);
  FILE* file = first == kWrite ? fopen(output, "w") : NULL;
  for (size_t i = 0; i < blocks; i++) {
    struct Block* block = &chunks[i / kPerChunk][i % kPerChunk];
    if (file && block->executed)
      fprintf(
          file, "%" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", block->address, block->bytes, block->instructions,
          block->executed);
    block->executed = 0;
  }
  if (file) fclose(file);
  pthread_mutex_unlock(&mutex);
}

EXPORT int qemu_plugin_install(Id id, const void* info, int count, char** arguments) {
  (void)info;
  for (int i = 0; i < count; i++) {
    if (!strncmp(arguments[i], "call=", 5)) number_of_call = atoll(arguments[i] + 5);
    if (!strncmp(arguments[i], "output=", 7)) output = strdup(arguments[i] + 7);
  }
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_vcpu_syscall_cb(id, called);
  return !output;
}
