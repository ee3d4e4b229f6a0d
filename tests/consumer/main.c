// A program of somebody else's: prints the PTX of one kernel. No GPU.
#include <stdio.h>

#include "lathe/lathe.h"

int main(void) {
  lathe_key* key = NULL;
  lathe_compilers* compilers = NULL;
  lathe_ptx* ptx = NULL;
  lathe_ptx_info info = {.struct_size = sizeof info};
  if (lathe_key_parse("gemv.q4_k.k4096.n14336.w4", &key) != LATHE_OK ||
      lathe_compilers_open(NULL, &compilers) != LATHE_OK ||
      lathe_ptx_emit(compilers, key, "sm_80", LATHE_ROUTE_TEXT, &ptx) != LATHE_OK ||
      lathe_ptx_get_info(ptx, &info) != LATHE_OK) {
    return 1;
  }
  fputs(info.text, stdout);
  lathe_ptx_close(ptx);
  lathe_compilers_close(compilers);
  lathe_key_close(key);
  return 0;
}
