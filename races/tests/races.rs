//! Every scene holds in every order of its threads.

macro_rules! scenes {
    ($($scene:ident)*) => {
        $(#[test] fn $scene() { shardlimit_races::races::$scene(); })*
    };
}

scenes! {
    two_calls_are_answered_whoever_sends
    two_calls_are_answered_where_calls_are_let_in
    nobody_waits_for_one_who_lets_in_and_is_gone
    nobody_waits_for_a_sender_that_is_gone
    whoever_joins_untold_goes_along
    whoever_joins_a_full_round_goes_along
    nobody_depends_on_a_call_that_is_not_polled
    nobody_waits_untold_for_a_sender_that_is_gone
    who_leaves_gives_back_what_he_was_granted
    calls_are_not_counted_twice
    no_deadline_is_overlooked
    nobody_waits_for_an_answer_that_has_come
    what_is_granted_has_one_owner
    who_is_late_has_nothing
    who_is_admitted_late_is_charged_once
    who_is_admitted_without_an_answer_is_not_charged_again
    permits_are_spent_once
    what_is_taken_back_is_not_spent
    a_purse_that_is_out_stays_out
    a_purse_with_permits_is_listed_once
    what_is_due_is_done_once
    a_turn_is_ended_once
    a_sick_shard_is_tried_once
    what_is_owed_is_paid_once
    nothing_is_left_when_the_one_task_ends
    whoever_finds_it_called_is_seen
}
