//! The checker finds mistakes: a scene that holds says something.

use shardlimit_races::races;

#[test]
#[should_panic(expected = "two send at once")]
fn a_right_to_send_that_is_given_up_twice() {
    races::broken_right_to_send();
}

#[test]
#[should_panic(expected = "five were counted twice")]
fn an_answer_that_is_noted_too_early() {
    races::broken_order_of_an_answer();
}

#[test]
#[should_panic(expected = "one was left behind")]
fn a_row_that_is_closed_too_late() {
    races::broken_end_of_a_row();
}
