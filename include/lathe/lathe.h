// The C interface of Lathe in one include: C99, and C++. lathe/lathe.hpp wraps it for C++.
#ifndef LATHE_LATHE_H
#define LATHE_LATHE_H

#include "lathe/c/base.h"      // status, errors, versions, and the rules of all functions
#include "lathe/c/batch.h"     // several sequences at a time
#include "lathe/c/dense.h"     // products of many vectors with dense weights
#include "lathe/c/engine.h"    // model files and sessions
#include "lathe/c/kernel.h"    // single kernels: keys, PTX, devices, launches
#include "lathe/c/pass.h"      // parts of a model, hidden states, times of steps
#include "lathe/c/services.h"  // keys and values, snapshots, likeliest and allowed tokens

#endif  // LATHE_LATHE_H
