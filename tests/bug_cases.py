"""Every numbered case of the public bug reports a slot limiter must survive, and the tests that carry its number.

A case without a test says why it can't apply; a note says what of a case can't, or which rule decides it.
test_bug_cases.py holds this table against NUMBERS and against the tests that there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["CASES", "NUMBERS", "Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """One report: its title, the tests (module.name, all of them named test_bug_<number>_...), and a reason."""

    title: str
    tests: tuple[str, ...] = ()
    reason: str = ""


# fmt: off
NUMBERS: Final = (
    2, 4, 6, 7, 8, 9, 10, 12, 13, 15, 16, 17, 19, 20, 21, 23, 24, 26, 28, 30,
    31, 32, 33, 34, 35, 37, 40, 41, 42, 43, 44, 47, 48, 50, 51, 52, 55, 56, 58, 59,
    60, 62, 63, 65, 66, 68, 69, 70, 71, 72, 73, 75, 77, 81, 83,
)
# fmt: on
"""The numbers of the reports' list, copied as they stand there."""

CASES: Final = {
    2: Case(
        "Cancelled waiter still in the queue, release, newcomer - one tick",
        ("test_cancellation.test_bug_2_cancelled_waiter_release_newcomer",),
    ),
    4: Case(
        "wait_for(acquire) hides or eats the outer cancel",
        (
            "test_cancellation.test_bug_4_cancelled_at_every_step_nothing_is_lost",
            "test_cancellation.test_bug_4_an_eager_task_cancelled_at_every_step",
            "test_transport.test_bug_4_wait_for_around_a_request_loses_no_slot",
        ),
    ),
    6: Case(
        "Two-stage acquire cancelled between the stages",
        ("test_bug_reports.test_bug_6_cancelled_between_two_stages_both_counts_return_to_zero",),
        reason="Acquiring several providers at once is not offered, nor Redis; two nested slots are shown.",
    ),
    7: Case(
        "Wait ended by KeyboardInterrupt / GeneratorExit / SystemExit",
        ("test_cancellation.test_bug_7_a_closed_coroutine_gives_the_place_back",),
    ),
    8: Case(
        "shield(acquire) orphans the grant",
        ("test_cancellation.test_bug_8_a_shielded_acquire_is_the_watchdogs",),
        reason="The rules leave shield(acquire) to the watchdog (FIN-1); no count of orphans.",
    ),
    9: Case(
        "Slot handed to a child task that is cancelled before its first step",
        ("test_cancellation.test_bug_9_a_slot_given_to_a_task_that_never_starts_is_the_watchdogs",),
        reason="A slot has no finaliser (FIN-1): the watchdog takes it back.",
    ),
    10: Case(
        "Head of queue leaves while capacity is already free",
        (
            "test_cancellation.test_bug_10_the_head_leaves_while_capacity_is_free",
            "test_cancellation.test_bug_10_the_head_leaves_as_its_pause_ends",
        ),
    ),
    12: Case(
        "Cancel callback vs release deadlock (threads)",
        (
            "test_bug_reports.test_bug_12_releasing_and_giving_up_in_many_threads_never_block_each_other",
            "test_bug_reports.test_bug_12_a_thread_releases_what_the_loop_cancels",
        ),
        reason="A blocked thread can't be cancelled: timeouts stand for it. On the loop, another thread releases.",
    ),
    13: Case(
        "Release and re-acquire in one step",
        ("test_admission.test_bug_13_release_and_acquire_in_one_step_dont_pass_the_queue",),
    ),
    15: Case(
        "Newcomer passes a queued waiter while the wake timer is late",
        ("test_admission.test_bug_15_a_newcomer_doesnt_pass_the_queue_though_the_timer_is_late",),
    ),
    16: Case(
        "Hand-over idles until a poll",
        ("test_bug_reports.test_bug_16_the_next_one_runs_at_the_very_moment_there_is_room",),
        reason="The half about two processes needs Redis, which is not offered.",
    ),
    17: Case(
        "Status says free though a waiter owns the turn",
        ("test_admission.test_bug_17_a_grant_counts_before_its_caller_runs",),
    ),
    19: Case(
        "NaN or infinite started_at breaks the heap",
        ("test_order.test_bug_19_a_bad_prompt_time_is_refused_and_scrambles_nothing",),
    ),
    20: Case(
        "Starvation by the ordering rule itself",
        ("test_order.test_bug_20_starvation_is_legal_and_seen",),
        reason="Starvation by older prompts is legal and visible (ORD-3): head_wait.",
    ),
    21: Case(
        "Polling limiter has no order at all",
        ("test_order.test_bug_21_wake_ups_are_as_many_as_grants",),
    ),
    23: Case(
        "Body raises before the first await",
        (
            "test_cancellation.test_bug_23_a_body_that_raises_gives_its_slot_back",
            "test_transport.test_bug_23_a_handler_that_raises_at_once_100_times",
        ),
    ),
    24: Case(
        "Refused requests change a counter",
        (
            "test_blocking_transport.test_bug_24_refusals_are_ours_and_change_nothing",
            "test_cancellation.test_bug_24_refusals_move_no_counter",
            "test_transport_429.test_bug_24_refusals_are_ours_and_change_nothing",
        ),
    ),
    26: Case(
        "Double release while others hold",
        (
            "test_release.test_bug_26_a_double_release_counts_once",
            "test_release.test_bug_26_a_late_release_frees_no_successor",
        ),
    ),
    28: Case(
        "Slot kept while the owner sleeps for a retry",
        (
            "test_sdk_blocking.test_bug_28_a_429_pauses_everybody_and_the_sdks_retry_keeps_its_prompt_time",
            "test_sdk_clients.test_bug_28_a_429_pauses_everybody_and_the_sdks_retry_keeps_its_prompt_time",
            "test_transport_429.test_bug_28_the_slot_cools_before_the_pause_and_the_retry_queues_with_the_original_time",
        ),
    ),
    30: Case(
        "Handle map: empty key, and growth without bound",
        ("test_admission.test_bug_30_the_empty_name_is_a_name",),
    ),
    31: Case(
        "Idle eviction throws away live state",
        ("test_limits.test_bug_31_live_state_is_never_dropped",),
    ),
    32: Case(
        "Timed out in the limiter, still running upstream",
        (
            "test_sdk_blocking.test_bug_32_a_stalled_stream_is_reclaimed_and_closed_upstream",
            "test_sdk_blocking.test_bug_32_an_answer_that_never_begins_is_reclaimed_and_closed_upstream",
            "test_sdk_clients.test_bug_32_a_stalled_stream_is_reclaimed_and_closed_upstream",
            "test_transport.test_bug_32_a_reclaimed_stream_is_closed_at_once_and_its_reader_is_told",
            "test_transport.test_bug_32_a_reclaimed_stream_that_nobody_reads_is_closed_too",
            "test_watchdog.test_bug_32_the_late_release_of_a_reclaimed_slot_does_nothing",
        ),
        reason="True upstream overlap is told by a warning (WAT-5); there is no count of zombies.",
    ),
    33: Case(
        "Background work collected mid-run",
        (
            "test_cancellation.test_bug_33_a_waiter_is_kept_alive_by_its_task_alone",
            "test_transport.test_bug_33_the_closing_of_a_forgotten_response_is_kept_alive_and_leaves_nothing",
        ),
    ),
    34: Case(
        "Lower then raise while over-subscribed",
        ("test_limits.test_bug_34_lower_then_raise_while_over_subscribed",),
    ),
    35: Case(
        "Raise must wake, and leave no ghost in the queue",
        ("test_admission.test_bug_35_raising_wakes_and_leaves_no_ghost",),
    ),
    37: Case(
        "Limit 0 means closed",
        ("test_limits.test_bug_37_limit_0_admits_nobody",),
    ),
    40: Case(
        "Two limiters for one provider",
        reason="Not specified: two managers or processes on one account are not coordinated; no Redis backend.",
    ),
    41: Case(
        "Limit from a status snapshot",
        ("test_admission.test_bug_41_a_status_is_a_frozen_copy",),
    ),
    42: Case(
        "Weighted/cap mismatch waits for ever",
        (
            "test_bug_reports.test_bug_42_no_request_can_be_larger_than_another",
            "test_bug_reports.test_bug_42_what_no_limit_admits_is_served_when_the_limit_allows_it",
        ),
        reason="There are no weights.",
    ),
    43: Case(
        "Bad numbers",
        (
            "test_validation.test_bug_43_the_constructor_judges_every_argument",
            "test_validation.test_bug_43_a_call_judges_its_arguments_and_changes_nothing",
            "test_validation.test_bug_43_acquire_judges_its_arguments_and_changes_nothing",
        ),
    ),
    44: Case(
        "Wall clock used for intervals",
        ("test_time.test_bug_44_the_wall_clock_decides_nothing",),
    ),
    47: Case(
        "Virtual clock equals the deadline exactly",
        ("test_time.test_bug_47_exact_at_the_deadline_however_large_the_clock",),
    ),
    48: Case(
        "Clock steps back",
        ("test_bug_reports.test_bug_48_a_clock_that_steps_back_frees_nothing_early_and_nothing_late",),
    ),
    50: Case(
        "Far-future delay overflows",
        ("test_time.test_bug_50_the_far_future_is_reached_in_capped_steps",),
    ),
    51: Case(
        "NaN/negative delay reaches the loop",
        ("test_time.test_bug_51_an_uncapped_delay_would_be_seen",),
    ),
    52: Case(
        "HTTP-date in all three forms",
        (
            "test_retry_after.test_bug_52_http_date_in_all_its_forms_is_one_instant",
            "test_retry_after.test_bug_52_two_digit_years",
            "test_transport_429.test_bug_52_a_date_is_measured_by_the_managers_wall_clock",
        ),
    ),
    55: Case(
        "Date out of range",
        (
            "test_retry_after.test_bug_55_a_date_out_of_range_does_not_count",
            "test_retry_after.test_bug_55_the_last_date_there_is_counts",
            "test_transport_429.test_bug_55_a_header_out_of_range_is_the_default_pause_and_no_exception",
        ),
    ),
    56: Case(
        "Absurdly long, or clamped too short",
        (
            "test_pause.test_bug_56_how_long_a_429_pauses",
            "test_retry_after.test_bug_56_the_cap_is_separate_and_told",
            "test_retry_after.test_bug_56_the_manager_honours_45_seconds_in_full_and_tells_what_it_capped",
            "test_transport_429.test_bug_56_45_seconds_are_honoured_in_full_and_a_cap_is_told",
        ),
        reason="What was requested and what was applied stand in the event (PAU-2), not in the status.",
    ),
    58: Case(
        "A later, shorter report shortens the pause",
        (
            "test_pause.test_bug_58_a_later_shorter_report_never_shortens",
            "test_transport_429.test_bug_58_a_later_shorter_429_shortens_nothing",
        ),
    ),
    59: Case(
        "Herd at resume",
        (
            "test_pause.test_bug_59_a_429_from_the_first_granted_stops_the_rest",
            "test_transport_429.test_bug_59_the_herd_at_the_end_of_a_pause_is_as_big_as_the_limit",
        ),
    ),
    60: Case(
        "Waiters never settle",
        (
            "test_close.test_bug_60_waiters_are_rejected_in_queue_order_and_a_second_close_does_nothing",
            "test_transport_429.test_bug_60_close_settles_every_request_that_queues",
        ),
    ),
    62: Case(
        "Acquire after destroy",
        ("test_close.test_bug_62_a_closed_manager_refuses_before_any_validation",),
    ),
    63: Case(
        "release() after the loop is closed",
        (
            "test_close.test_bug_63_release_after_the_loop_is_closed_says_nothing",
            "test_transport.test_bug_63_a_response_that_outlives_its_loop_gives_the_slot_back_without_one",
        ),
    ),
    65: Case(
        "Timed-out cross-thread acquire keeps going",
        ("test_threads.test_bug_65_a_cross_thread_acquire_that_gives_up_leaves_nothing",),
    ),
    66: Case(
        "Fork with a live limiter",
        ("test_bug_reports.test_bug_66_a_forked_child_starts_without_the_parents_slots",),
    ),
    68: Case(
        "Bound to the wrong loop, but only under contention",
        ("test_loops.test_bug_68_run_after_run_contended_or_not",),
    ),
    69: Case(
        "release() from another thread",
        (
            "test_threads.test_bug_69_eight_threads_release_a_thousand_slots_each",
            "test_transport.test_bug_69_a_response_forgotten_in_another_thread_wakes_the_loop",
        ),
    ),
    70: Case(
        "Release by a task that did not acquire",
        ("test_cancellation.test_bug_70_any_task_may_release",),
    ),
    71: Case(
        "Holder's loop is gone",
        ("test_bug_reports.test_bug_71_a_slot_of_a_loop_that_is_gone_costs_at_most_the_slot_timeout",),
    ),
    72: Case(
        "Coroutine never awaited / wrong `with`",
        (
            "test_cancellation.test_bug_72_an_unawaited_acquire_takes_no_place",
            "test_release.test_bug_72_a_plain_with_on_slot_is_refused_with_a_hint",
            "test_typing.test_bug_72_the_two_classic_mistakes_are_among_them",
        ),
    ),
    73: Case(
        "acquire under wait_for on py3.10/3.11 changes the task",
        ("test_cancellation.test_bug_73_wait_for_changes_nothing",),
    ),
    75: Case(
        "Slot freed at the response head",
        (
            "test_blocking_transport.test_bug_75_the_slot_is_held_until_the_body_has_ended",
            "test_blocking_transport.test_bug_75_a_slot_given_back_at_the_head_would_be_noticed",
            "test_blocking_transport.test_bug_75_whatever_goes_wrong_gives_the_slot_back",
            "test_experiment.test_bug_75_the_experiment_fails_if_slots_are_given_back_at_the_head",
            "test_sdk_blocking.test_bug_75_a_slot_given_back_at_the_head_overshoots",
            "test_sdk_blocking.test_bug_75_a_broken_stream_gives_the_slot_back",
            "test_sdk_clients.test_bug_75_a_slot_given_back_at_the_head_overshoots",
            "test_sdk_clients.test_bug_75_a_broken_stream_gives_the_slot_back",
            "test_transport.test_bug_75_the_slot_is_held_until_the_body_has_ended",
            "test_transport.test_bug_75_a_slot_given_back_at_the_head_would_be_noticed",
            "test_transport.test_bug_75_a_read_error_gives_the_slot_back",
            "test_transport.test_bug_75_a_decode_error_gives_the_slot_back",
            "test_transport.test_bug_75_a_failing_hook_gives_the_slot_back",
            "test_transport.test_bug_75_every_redirect_takes_its_own_slot_and_none_deadlocks_at_limit_1",
            "test_transport.test_bug_75_every_auth_hop_takes_its_own_slot_and_none_deadlocks_at_limit_1",
        ),
    ),
    77: Case(
        "Consumer task cancelled mid-stream",
        (
            "test_sdk_blocking.test_bug_77_an_exception_in_the_loop_over_a_stream_gives_the_slot_back",
            "test_sdk_clients.test_bug_77_a_reader_cancelled_in_its_own_code_gives_the_slot_back_though_its_task_is_kept",
            "test_transport.test_bug_77_a_request_that_fails_before_its_head_gives_the_slot_back",
            "test_transport.test_bug_77_a_request_cancelled_at_any_step_gives_the_slot_back",
            "test_transport.test_bug_77_a_reader_that_dies_between_two_chunks_gives_the_slot_back",
        ),
    ),
    81: Case(
        "Hook re-enters the limiter",
        (
            "test_callbacks.test_bug_81_a_call_from_a_callback_acts_as_if_right_after",
            "test_callbacks.test_bug_81_a_delivery_in_the_middle_of_a_change_would_be_seen",
            "test_transport_429.test_bug_81_a_callback_of_the_429_may_close_the_manager",
        ),
    ),
    83: Case(
        "The watchdog dies after one exception",
        ("test_watchdog.test_bug_83_a_failing_reclaim_callback_stops_no_sweep",),
    ),
}
