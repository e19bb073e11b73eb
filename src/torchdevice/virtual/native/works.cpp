// The work that a collective returns. That of the backing has the stand-ins of tensors as its results; programs get
// their own tensors, from `result()` and from the future, which hooks of DistributedDataParallel read.
#include "relabel.h"
#include "works.h"

#if __has_include(<torch/csrc/distributed/c10d/Work.hpp>)
#include <torch/csrc/distributed/c10d/Work.hpp>
#define TORCHDEVICE_HAS_WORKS
#endif

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace torchdevice {

#ifdef TORCHDEVICE_HAS_WORKS
namespace {

using c10::ivalue::Future;

// The work of the backing may be an object of Python that ends when it was waited for, or when it gave its future: later
// questions are answered here.
class WorkOfDevice final : public c10d::Work {
 public:
  WorkOfDevice(c10::intrusive_ptr<c10d::Work> of_backing, std::vector<Tensor> results)
      : Work(-1, of_backing->retrieveOpType()), of_backing_(std::move(of_backing)), results_(std::move(results)) {}
  bool isCompleted() override {
    const auto future = present_future();
    return waited_ || (future ? future->completed() : of_backing_->isCompleted());
  }
  bool isSuccess() const override {
    const auto future = present_future();
    return waited_ || (future ? future->completed() && !future->hasError() : of_backing_->isSuccess());
  }
  std::exception_ptr exception() const override {
    const auto future = present_future();
    if (waited_) return nullptr;
    if (future) return future->hasError() ? future->exception_ptr() : nullptr;
    return of_backing_->exception();
  }
  int sourceRank() const override { return of_backing_->sourceRank(); }
  std::vector<Tensor> result() override {
    if (!isCompleted()) of_backing_->result();  // raises what the backend raises
    return results_;
  }
  void synchronize() override { of_backing_->synchronize(); }
  bool wait(std::chrono::milliseconds timeout) override {
    if (waited_) {
      of_backing_->synchronize();
      return true;
    }
    if (const auto future = present_future())
      future->waitAndThrow();
    else if (!of_backing_->wait(timeout))
      return false;
    waited_ = true;
    return true;
  }
  void blockCurrentStream() override { of_backing_->blockCurrentStream(); }
  void abort() override { of_backing_->abort(); }
  float getDuration() const override { return of_backing_->getDuration(); }
  uint64_t getSequencenumber() const override { return of_backing_->getSequencenumber(); }
  c10::intrusive_ptr<Future> getFutureResult() override { return of_backing_->getFutureResult(); }
  c10::intrusive_ptr<Future> getFuture() override {
    if (auto future = present_future()) return future;
    auto ours = c10::make_intrusive<Future>(
        c10::ListType::create(c10::TensorType::get()), std::vector<Device>{results_.front().device()});
    expect_other_streams();  // a future of the backing calls back on a stream of its own, which ours records an event on
    if (waited_) {
      ours->markCompleted(c10::IValue(results_));
    } else {
      of_backing_->getFuture()->addCallback([ours, results = results_](Future& done) {
        if (done.hasError())
          ours->setError(done.exception_ptr());
        else
          ours->markCompleted(c10::IValue(results));
      });
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (!future_) future_ = ours;
    return future_;
  }

 private:
  c10::intrusive_ptr<Future> present_future() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return future_;
  }
  const c10::intrusive_ptr<c10d::Work> of_backing_;
  const std::vector<Tensor> results_;
  c10::intrusive_ptr<Future> future_;
  std::atomic<bool> waited_{false};
};

}  // namespace

void give_work_its_results(const c10::IValue& first, c10::IValue& result) {
  if (!result.isCustomClass()) return;
  std::vector<Tensor> written;
  each_tensor(first, [&](const Tensor& t) { written.push_back(t); });
  if (written.empty() || !is_virtual(written.front())) return;
  auto work = result.toCustomClass<c10d::Work>();
  if (work) result = c10::IValue(c10::intrusive_ptr<c10d::Work>(c10::make_intrusive<WorkOfDevice>(work, std::move(written))));
}
#else
void give_work_its_results(const c10::IValue&, c10::IValue&) {}
#endif

}  // namespace torchdevice
