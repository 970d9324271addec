/* Copyright (C) the limit_sliding authors */

#pragma once

#include <initializer_list>

#include "core/limiter/limiter.hpp"

using namespace limit_sliding;

/* All of them, each at the index that is its number. */
static const Algorithm algorithms[] = {Algorithm::kCounter, Algorithm::kLog, Algorithm::kFixed,
                                       Algorithm::kTokenBucket, Algorithm::kLeakyBucket};

/* The number by which the script of Redis knows it. */
static inline int number_of(Algorithm algorithm) { return static_cast<int>(algorithm); }
