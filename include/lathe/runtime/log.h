// Owns the form in which Lathe tells an embedder what it does.
#pragma once

#include <functional>
#include <string_view>

namespace lathe {

// Numbered for the life of the library.
enum class LogLevel : int {
  warning = 1,  // something was done without: a route, the cache ...
  info = 2,     // a kernel was built, an entry was read ...
};

// Takes one event as one line without its end: "lathe,1,kernel,built,key=...,route=llvm,...".
// docs/logging.md lists the events and their fields. Called from any thread, several at once, never
// while a token is decoded. It must not throw, nor call the device it was given to.
using LogHook = std::function<void(LogLevel level, std::string_view line)>;

}  // namespace lathe
