#pragma once
// The server's end of a response stream: messages are queued from any thread and written one after another,
// whatever the client's pace. It owns itself while the call is open, so that whoever still holds it after
// that writes into nothing.
//
//   auto stream = std::make_shared<MyStream>();   // derives from StreamWriter<Response>
//   stream->open();                               // from the RPC handler, which then returns stream.get()
//   stream->send(...); stream->finish(status);    // any thread

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <mutex>
#include <utility>

namespace strata::rpc {

template <class Message>
class StreamWriter : public grpc::ServerWriteReactor<Message>,
                     public std::enable_shared_from_this<StreamWriter<Message>> {
 public:
  void open() { self_ = this->shared_from_this(); }

  void send(Message message) {
    const Message* first = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (finishing_) return;
      queue_.push_back(std::move(message));
      if (std::exchange(writing_, true)) return;
      first = &queue_.front();
    }
    // Outside the lock, like every call into gRPC: it may answer on this thread.
    this->StartWrite(first);
  }

  // For a client that does not read: what waits is dropped, and the status follows what is being written.
  void cut_off(grpc::Status status) {
    {
      std::lock_guard lock(mutex_);
      if (queue_.size() > 1) queue_.erase(queue_.begin() + 1, queue_.end());
    }
    finish(std::move(status));
  }

  // What was sent before is written first. Only the first call counts.
  void finish(grpc::Status status) {
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(finishing_, true)) return;
      status_ = std::move(status);
      if (writing_) return;
    }
    this->Finish(status_);
  }

 protected:
  // Messages that are not written yet.
  std::size_t waiting() {
    std::lock_guard lock(mutex_);
    return queue_.size();
  }
  // One more message has been written. Runs on a gRPC thread; whoever produces more than a slow reader takes
  // goes on from here.
  virtual void on_written() {}
  // The client has gone or has given up. Runs on a gRPC thread; finish() must follow from somewhere.
  virtual void on_cancelled() = 0;

 private:
  void OnWriteDone(bool ok) final {
    const Message* next = nullptr;
    bool over = false;
    {
      std::lock_guard lock(mutex_);
      queue_.pop_front();
      if (!ok) queue_.clear();  // nobody reads any more
      writing_ = !queue_.empty();
      if (writing_) next = &queue_.front();
      over = !writing_ && finishing_;
    }
    if (next != nullptr) this->StartWrite(next);
    if (over) {
      this->Finish(status_);
    } else {
      on_written();
    }
  }
  void OnCancel() final { on_cancelled(); }
  void OnDone() final { self_.reset(); }

  std::mutex mutex_;
  std::deque<Message> queue_;  // the front is being written; a deque, so that appending does not move it
  bool writing_ = false;
  bool finishing_ = false;
  grpc::Status status_;
  std::shared_ptr<StreamWriter> self_;
};

}  // namespace strata::rpc
