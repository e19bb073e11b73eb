// Mutexes and forks.
#pragma once

#include <pthread.h>

namespace torchdevice {

// An object with a mutex that is never destroyed. A child that was forked while another thread held the mutex would
// deadlock, because it does not have that thread. Therefore a fork waits for the mutex. `get` is the function that
// returns the object.
template <class T, auto get>
T* outlives_forks() {
  pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); }, [] { get().mutex.unlock(); });
  return new T;
}

}  // namespace torchdevice
