// Mutexes and forks.
#pragma once

#include <pthread.h>

namespace torchdevice {

// Something with a mutex that lives for ever. A child that was forked while another thread held the mutex would wait for that
// thread, which it does not have: so a fork waits until nobody holds it. `get` is the function that returns this.
template <class T, auto get>
T* outlives_forks() {
  pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); }, [] { get().mutex.unlock(); });
  return new T;
}

}  // namespace torchdevice
