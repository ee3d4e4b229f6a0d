// Owns the tables of a KV cache by a dictionary of atoms: the caller's, checked, or Lathe's own.
#pragma once

#include <cstddef>

#include "lathe/codegen/result.h"
#include "lathe/plan/plan.h"

namespace lathe {

// Ok, or what the options' atoms cannot be together with.
Result<void> check_atoms(const PlanOptions& options, const ModelSpec& spec);

// Ok where so many values, which nobody has read yet, are tables of the options' atoms, whose count
// is given, for the options' part of the model.
Result<void> check_atom_values(const PlanOptions& options, const ModelSpec& spec,
                               std::size_t values);

// Behind the plan's other tables: one of atoms, or two for each layer of the plan. Takes them out
// of its options.
Result<void> add_atom_tables(Plan& plan);

}  // namespace lathe
