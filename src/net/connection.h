#pragma once
// One byte stream to a peer, whatever carries it: TCP today; TLS and Unix sockets have the same face. Owned by one
// HttpConnection; loop thread only. Nothing here throws; after an error only close() is of use.
//
// Sending is by readiness: try_write() hands bytes to the kernel without waiting, and only when that is not enough does
// a coroutine wait_writable(). So a small event costs one system call and wakes nobody.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "net/asio.h"

namespace heddle::net {

enum class IoStatus : uint8_t {
  ok,           // n bytes moved (for waits: it is ready)
  would_block,  // the kernel's buffer is full; n bytes may have moved before
  end,          // the peer has sent its last byte; it may still read
  failed,       // reset, timed out, broken: nothing will move any more
  cancelled,    // closed or told to stop from this side
};

struct IoResult {
  IoStatus status = IoStatus::ok;
  size_t n = 0;
};

class Connection {
 public:
  virtual ~Connection() = default;

  // Waits for bytes and reads at most room.size() of them; `room` must live until it returns. One reader at a time.
  virtual Task<IoResult> read_some(std::span<char> room) = 0;
  // Waits, without taking a byte, until the stream is broken. Not concurrently with a read. The watch for a client that
  // has sent its last byte, or more bytes than are kept. stop_watching() ends it with `cancelled`.
  virtual Task<IoResult> watch() = 0;
  virtual void stop_watching() = 0;

  // Never blocks. Writes a prefix; `ok` means all of it.
  virtual IoResult try_write(std::string_view bytes) = 0;
  virtual Task<IoResult> wait_writable() = 0;

  virtual void shutdown_write() = 0;  // the peer reads to an orderly end; reading goes on
  virtual void close() = 0;           // at once; operations in progress end with `cancelled`; harmless when repeated
  virtual bool is_open() const = 0;
  virtual std::string peer() const = 0;  // "127.0.0.1:54321", as when the stream was opened
};

}  // namespace heddle::net
