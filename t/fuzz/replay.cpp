/* Copyright (C) the limit_sliding authors */

/*
 * usage: NAME_fuzz [PATH...]
 *
 * Runs a fuzzer's target on the files given, or on those of its corpus, without
 * libFuzzer, and prints TAP.  A file that the target does not survive ends the
 * process, after the name of that file.
 */

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "input.hpp"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(const std::vector<fs::path> &paths) {
    std::vector<fs::path> files;
    for (const fs::path &path : paths) {
        if (!fs::is_directory(path)) {
            files.push_back(path);
            continue;
        }

        for (const auto &entry : fs::directory_iterator(path)) {
            files.push_back(entry.path());
        }
    }

    std::sort(files.begin(), files.end());
    return files;
}

} // namespace

int main(int argc, char **argv) {
    std::string name = fs::path(argv[0]).filename().string();
    name = name.substr(0, name.rfind("_fuzz"));

    std::vector<fs::path> paths(argv + 1, argv + argc);
    if (paths.empty()) { paths.push_back(fs::path(FUZZ_CORPUS) / name); }

    const std::vector<fs::path> files = files_of(paths);
    printf("1..%zu\n", files.size() + 1);
    printf("%sok 1 - %s has a corpus\n", files.empty() ? "not " : "", name.c_str());

    for (size_t i = 0; i < files.size(); i++) {
        std::ifstream file(files[i], std::ios::binary);
        const std::string data(std::istreambuf_iterator<char>(file), {});
        printf("# %s\n", files[i].c_str());
        fflush(stdout);

        /* memory of its own, so that a sanitizer sees what reads beyond it */
        const std::vector<uint8_t> bytes(data.begin(), data.end());
        (void)LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
        printf("ok %zu - %s\n", i + 2, files[i].filename().c_str());
    }

    return files.empty();
}
