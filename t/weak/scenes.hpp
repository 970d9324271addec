/* Copyright (C) the limit_sliding authors */

#pragma once

#include <vector>

#include "checker.hpp"

/* The scenes of each part. */
std::vector<weak::Scene> table_scenes();
std::vector<weak::Scene> ring_scenes();
std::vector<weak::Scene> lease_scenes();
std::vector<weak::Scene> overrides_scenes();
std::vector<weak::Scene> ban_scenes();
std::vector<weak::Scene> cache_scenes();
std::vector<weak::Scene> hold_scenes();
