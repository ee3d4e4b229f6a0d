// Owns the file functions of an executable in the temper of bad disks and of network file systems.
// Linking it replaces them; they are the system's until they are told otherwise.
#pragma once

namespace lathe::testing {

struct FileTemper {
  long disk_bytes = -1;       // until the disk is full; negative: it never is
  int slow_microseconds = 0;  // that a call takes at most
  // As over a network with several servers: of a thousand calls so many end in ESTALE, and a rename
  // that has been reported is seen by others only some calls later.
  int stale_per_mille = 0;
  bool late_renames = false;
  unsigned seed = 1;
};

void set_file_temper(const FileTemper& temper);
// Renames that are still on their way arrive.
void settle_files();
int stale_answers();  // of this process

}  // namespace lathe::testing
