//! Limits on failures, and the resulting verdict on a run.

use load::{RunOutcome, Workload};
use report::condition::{ConditionFigure, FigureCondition, StreamFigure};

use super::expect;
use super::values::MaxErrors;
use crate::commands::FAILED;
use crate::commands::verdict::{INVALID, Judged, MISSED};

pub(super) struct FailureLimits<'a> {
    pub(super) max_errors: Option<MaxErrors>,
    pub(super) expectations: &'a [FigureCondition],
}

impl FailureLimits<'_> {
    /// Judges a run. Missed expectations come first.
    pub(super) fn judge(&self, outcome: &RunOutcome) -> Judged {
        match expect::missed(outcome).map(|message| (MISSED, message)).or_else(|| self.failure(outcome)) {
            None => Ok(()),
            Some(failure) => Err(failure),
        }
    }

    /// Returns why a run failed regardless of expectations: exit code and reason.
    fn failure(&self, outcome: &RunOutcome) -> Option<(u8, String)> {
        let failed = |message: String| Some((FAILED, message));
        if outcome.interrupted {
            return failed("interrupted: the figures are those until then".to_owned());
        }
        if let Some(reason) = &outcome.server_gone {
            return failed(format!("the server is gone: {reason}"));
        }
        if outcome.requests == 0 {
            let what =
                if outcome.stream.is_some() { "no message was received" } else { "no request succeeded" };
            return failed(what.to_owned());
        }
        if let Some(most) = self.max_errors().filter(|most| most.are_exceeded_by(outcome)) {
            let (count, what) =
                (outcome.errors.total(), if outcome.stream.is_some() { "streams" } else { "requests" });
            return failed(format!("{count} {what} failed, and --max-errors is {most}"));
        }
        if let Some(lost) = self.lost(outcome) {
            return failed(format!(
                "{lost} messages were lost; say how many may be with --expect 'lost < 10'"
            ));
        }
        let problem = outcome.problems.first()?;
        Some((INVALID, format!("the run is invalid: {}", load::explained(problem))))
    }

    /// Limit on failed requests: none by default if an expectation is about them.
    fn max_errors(&self) -> Option<MaxErrors> {
        let is_about_errors = |one: &FigureCondition| {
            matches!(one.figure(), ConditionFigure::Errors | ConditionFigure::ErrorShare)
        };
        let is_expected = self.expectations.iter().any(is_about_errors);
        self.max_errors.or((!is_expected).then_some(MaxErrors::Count(0)))
    }

    /// Lost messages, unless an expectation is about them. Event streams only show gaps in the servers' IDs, which
    /// may have other reasons.
    fn lost(&self, outcome: &RunOutcome) -> Option<u64> {
        let figures = outcome.stream.as_deref()?;
        let is_about_lost = |one: &FigureCondition| {
            matches!(one.figure(), ConditionFigure::Stream(StreamFigure::Lost | StreamFigure::LostShare))
        };
        let is_certain = !matches!(figures.plan.workload, Workload::Events);
        let is_judged = self.max_errors.is_some() || self.expectations.iter().any(is_about_lost);
        Some(figures.counts.lost).filter(|lost| *lost > 0 && is_certain && !is_judged)
    }
}
