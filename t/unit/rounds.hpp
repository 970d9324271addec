/* Copyright (C) the limit_sliding authors */

/* Threads that play many short rounds, each begun by all at the same moment. */

#pragma once

#include "support.hpp"

#include <atomic>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#define THREADS_MAX 8

/*
 * A Game has begin(round) and end(), which run alone, and work(thread, &random)
 * in between, which runs in each thread.
 */
template <class Game>
class Rounds {
public:
    /*
     * Plays so many rounds, or fewer if they take longer than `enough_s`: on a
     * busy machine a round takes a thousand times as long.
     */
    static void play(Game *game, unsigned threads, unsigned rounds, time_t enough_s) {
        Rounds all(game, threads, rounds, enough_s);
        pthread_t ids[THREADS_MAX];
        Player players[THREADS_MAX];

        for (unsigned i = 0; i < threads; i++) {
            players[i] = {&all, i};
            assert_int_equal(pthread_create(&ids[i], NULL, play_all, &players[i]), 0);
        }

        for (unsigned i = 0; i < threads; i++) {
            pthread_join(ids[i], NULL);
        }
    }

private:
    struct Player {
        Rounds *all;
        unsigned thread;
    };

    Rounds(Game *game, unsigned threads, unsigned rounds, time_t enough_s)
        : game_(game), threads_(threads), rounds_(draws(rounds)),
          enough_s_(draws(static_cast<unsigned>(enough_s))) {}

    static void *play_all(void *data) {
        const Player *player = static_cast<const Player *>(data);

        player->all->play_as(player->thread);

        return NULL;
    }

    void play_as(unsigned thread) {
        uint64_t random = thread;
        time_t start = time(NULL);

        for (unsigned round = 0; round < rounds_; round++) {
            if (thread == 0) {
                is_enough_ = time(NULL) > start + enough_s_;
                game_->begin(round);
            }

            meet();

            if (is_enough_) { break; }

            game_->work(thread, &random);
            meet();

            if (thread == 0) { game_->end(); }
        }
    }

    /* Spins: to wake up from a lock takes longer than a whole round. */
    void meet() {
        unsigned turn = turn_;

        if (waiting_.fetch_add(1) == threads_ - 1) {
            waiting_ = 0;
            turn_ = turn + 1;
            return;
        }

        for (unsigned spins = 1; turn_ == turn; spins++) {
            if (threads_ > 2 || spins % 100 == 0) { sched_yield(); }
        }
    }

    Game *game_;
    unsigned threads_;
    unsigned rounds_;
    time_t enough_s_;
    std::atomic<unsigned> waiting_{0};
    std::atomic<unsigned> turn_{0};
    std::atomic<bool> is_enough_{false};
};
