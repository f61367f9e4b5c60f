/* The limiter's rules once more, in Promela: an independent twin of what `tickets.py` makes of the whole-system model.
 *
 * N requests come again and again; LIMIT is the first limit; with FIFO 1 all prompts are equally old, else request 0 is
 * the oldest, and so on (ORD-1). DETAILED 1 adds timeouts, grants on their way to their callers, reclaimed slots told
 * from cooling ones, a 429 during a pause, resume, limits from 0 to LIMIT + 1, and close. Time is left out: what a
 * deadline or a sweep does may happen at any moment.
 *
 * Each event is one d_step with its guard in front, so SPIN's transitions are the events (and one more, the start).
 * Ties between texts are avoided on purpose: this one keeps a counter and a sorted array where the Python model rescans.
 *
 *     spin -a -DN=3 -DLIMIT=2 -DFIFO=0 -DDETAILED=0 twin.pml && gcc -DNOREDUCE -DSAFETY -o pan pan.c && ./pan
 *     spin -a -DSTARVES ... twin.pml && gcc -DNOREDUCE -o pan pan.c && ./pan -a
 */
#define IDLE      0
#define QUEUED    1
#define HANDED    2   /* granted, but its caller hasn't run yet (CAN-2) */
#define HELD      3
#define COOLING   4
#define RECLAIMED 5

#if DETAILED
#define SWEPT   RECLAIMED
#define GRANTED HANDED   /* from the queue; a newcomer's grant is received at once */
#else
#define SWEPT   COOLING
#define GRANTED HELD
#endif

byte phase[N];
byte queue[N];     /* who waits, the head first; only the first `waiting` places count, the others are 0 */
byte waiting;
byte in_flight;    /* ACC-1 */
byte limit = LIMIT;
bool paused;
bool closed;
hidden byte place, other, counted;

#define may_grant (!paused && !closed && in_flight < limit)   /* ADM-4 */

/* ADM-6: above the limit in_flight never rises. */
inline grant(request, next) {
    assert(may_grant);
    phase[request] = next;
    in_flight++
}

inline leave_queue(request) {
    place = 0;
    do
    :: queue[place] != request -> place++
    :: else -> break
    od;
    waiting--;
    do
    :: place < waiting -> queue[place] = queue[place + 1]; place++
    :: else -> break
    od;
    queue[waiting] = 0
}

/* ORD-1: behind everybody who is as old or older. */
inline join_queue(request) {
    place = waiting;
    do
    :: !FIFO && place > 0 && queue[place - 1] > request -> queue[place] = queue[place - 1]; place--
    :: else -> break
    od;
    queue[place] = request;
    waiting++;
    phase[request] = QUEUED
}

/* ADM-2 */
inline admit() {
    do
    :: waiting > 0 && may_grant ->
        other = queue[0];
        leave_queue(other);
        grant(other, GRANTED)
    :: else -> break
    od
}

inline acquire(request) {   /* ADM-1 */
    if
    :: may_grant && waiting == 0 -> grant(request, HELD)
    :: else -> join_queue(request)
    fi
}

inline quit(request) {   /* CAN-1, CAN-3 */
    leave_queue(request);
    phase[request] = IDLE
}

inline set_free(request) {   /* REL-3, CAN-2 */
    phase[request] = IDLE;
    in_flight--;
    admit()
}

inline release(request) {   /* REL-1, CLO-1 */
    if
    :: closed -> set_free(request)
    :: else -> phase[request] = COOLING
    fi
}

inline end_pause() {   /* PAU-5 */
    paused = false;
    admit()
}

inline set_limit(number) {   /* LIM-1, LIM-2 */
    limit = number;
    admit()
}

inline deliver() {
    place = 0;
    do
    :: place < N ->
        if
        :: phase[place] == HANDED -> phase[place] = HELD
        :: else
        fi;
        place++
    :: else -> break
    od
}

inline close() {   /* CLO-1 */
    closed = true;
    paused = false;
    place = 0;
    do
    :: place < N ->
        if
        :: phase[place] == QUEUED -> phase[place] = IDLE
        :: phase[place] == COOLING || phase[place] == RECLAIMED -> phase[place] = IDLE; in_flight--
        :: else
        fi;
        queue[place] = 0;
        place++
    :: else -> break
    od;
    waiting = 0
}

/* At rest, which is after each event: no lost wake-up (ADM-5), and the counter tells the truth (ACC-1). */
inline check() {
    assert(!(waiting > 0 && may_grant));
    place = 0;
    counted = 0;
    do
    :: place < N ->
        if
        :: phase[place] >= HANDED -> counted++
        :: else
        fi;
        place++
    :: else -> break
    od;
    assert(counted == in_flight);
    place = 0;
    other = 0;
    counted = 0
}

/* Compiled with -DPRINTF, the verifier prints every transition that it takes: from where, what, and to where. */
inline tell() {
    place = 0;
    do
    :: place < N -> printf("%d.%d ", phase[place], queue[place]); place++
    :: else -> break
    od;
    printf("%d %d %d", limit, paused, closed)
}
#define BEGIN(name, about) tell(); printf(" | "); printf(name); printf(" %d | ", about)
#define END                check(); tell(); printf("\n"); place = 0

#define EVENT(guard, name, about, effect) :: d_step { guard -> BEGIN(name, about); effect; END }

#define REQUEST(i) \
    EVENT(phase[i] == IDLE && !closed,      "acquire", i, acquire(i)) \
    EVENT(phase[i] == QUEUED,               "cancel",  i, quit(i)) \
    EVENT(phase[i] == HELD,                 "release", i, release(i)) \
    EVENT(phase[i] == HELD && !closed,      "sweep",   i, phase[i] = SWEPT) \
    EVENT(phase[i] == COOLING || phase[i] == RECLAIMED, "cooled", i, set_free(i))

#define REQUEST_IN_DETAIL(i) \
    EVENT(phase[i] == QUEUED,               "timeout", i, quit(i)) \
    EVENT(phase[i] == HANDED,               "cancel",  i, set_free(i)) \
    EVENT(phase[i] == HANDED && !closed,    "sweep",   i, phase[i] = SWEPT)

#if N > 2
#define OR_2 || phase[2] == HANDED
#else
#define OR_2
#endif
#if N > 3
#define OR_3 || phase[3] == HANDED
#else
#define OR_3
#endif
#define some_handed (phase[0] == HANDED || phase[1] == HANDED OR_2 OR_3)

#ifdef STARVES
/* The opposite of: the youngest is served in the end, where pauses end, and request 0 comes, is served and goes again
 * and again. It can happen if the oldest prompt goes first, which is the starvation that ORD-3 allows, and can't if all
 * are equally old. (By hand: SPIN takes a minute to make this automaton from the formula.) */
#define waits (phase[N - 1] == QUEUED)
never {
before:
    if
    :: true -> goto before
    :: waits -> goto pause_ends
    fi;
pause_ends:
    if
    :: waits -> goto pause_ends
    :: waits && !paused -> goto other_is_served
    fi;
other_is_served:
    if
    :: waits -> goto other_is_served
    :: waits && phase[0] == HELD -> goto other_goes
    fi;
other_goes:
    if
    :: waits -> goto other_goes
    :: waits && phase[0] == IDLE -> goto accept
    fi;
accept:
    if
    :: waits -> goto pause_ends
    fi
}
#endif

active proctype provider() {
end:
    do
    REQUEST(0)
    REQUEST(1)
#if N > 2
    REQUEST(2)
#endif
#if N > 3
    REQUEST(3)
#endif
#if N > 4
    REQUEST(4)
#endif
#if N > 5
    REQUEST(5)
#endif
    EVENT(paused,                           "pause_over",   0, end_pause())
#if DETAILED
    REQUEST_IN_DETAIL(0)
    REQUEST_IN_DETAIL(1)
#if N > 2
    REQUEST_IN_DETAIL(2)
#endif
#if N > 3
    REQUEST_IN_DETAIL(3)
#endif
    EVENT(paused,                           "resume",       0, end_pause())
    EVENT(!closed,                          "rate_limited", 0, paused = true)
    EVENT(some_handed,                      "loop_runs",    0, deliver())
    EVENT(!closed,                          "set_limit",    0, set_limit(0))
    EVENT(!closed,                          "set_limit",    1, set_limit(1))
    EVENT(!closed,                          "set_limit",    2, set_limit(2))
#if LIMIT > 1
    EVENT(!closed,                          "set_limit",    3, set_limit(3))
#endif
    EVENT(!closed,                          "close",        0, close())
#else
    EVENT(!closed && !paused,               "rate_limited", 0, paused = true)
#endif
    od
}
