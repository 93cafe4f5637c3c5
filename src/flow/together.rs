//! Futures that run side by side in one task.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Each begins before any of them is waited for. Dropping it drops those that are not over.
pub(crate) struct Together<F: Future> {
    running: Vec<(usize, Pin<Box<F>>)>,
    over: VecDeque<(usize, F::Output)>,
}

impl<F: Future> Together<F> {
    pub(crate) fn new(futures: impl IntoIterator<Item = F>) -> Self {
        let running = futures.into_iter().map(Box::pin).enumerate().collect();
        Self { running, over: VecDeque::new() }
    }

    /// The next that is over, with its place; none if all are.
    pub(crate) async fn next(&mut self) -> Option<(usize, F::Output)> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Waits for all of them, and gives what they came to in the order in which they were given.
    pub(crate) async fn all(mut self) -> Vec<F::Output> {
        let mut ended = Vec::with_capacity(self.running.len());
        while let Some(end) = self.next().await {
            ended.push(end);
        }
        ended.sort_unstable_by_key(|(place, _)| *place);
        ended.into_iter().map(|(_, output)| output).collect()
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, F::Output)>> {
        if self.over.is_empty() {
            let over = &mut self.over;
            self.running.retain_mut(|(place, future)| match future.as_mut().poll(context) {
                Poll::Ready(output) => {
                    over.push_back((*place, output));
                    false
                }
                Poll::Pending => true,
            });
        }
        match self.over.pop_front() {
            Some(end) => Poll::Ready(Some(end)),
            None if self.running.is_empty() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}
