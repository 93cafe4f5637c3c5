//! Drawing, with a light background and colours that most eyes tell apart.

use std::error::Error;
use std::fs;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::axis::Axis;
use super::{Bars, Lines};

type Drawn = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

const SIZE: (u32, u32) = (800, 450);
/// After Okabe and Ito: also for eyes that do not see red and green.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(90, 90, 90),
];
/// The part of a group's width that its bars take.
const BARS: f64 = 0.8;
const FONT: &str = "sans-serif";
/// The drawing library takes 1.24 of these for a pixel.
const LABEL: u32 = 16;
const TITLE: u32 = 21;

impl Lines {
    /// Draws into this file; its folder is made.
    ///
    /// # Errors
    /// What the file system said.
    pub fn draw(&self, path: &Path) -> Drawn {
        let points = || self.series.iter().flat_map(|series| &series.values);
        let x = Axis::around(self.x.1, points().map(|point| point.0));
        let y = Axis::around(self.y.1, points().map(|point| point.1));
        on_paper(path, |area| {
            let mut chart = chart(area, &self.title, x, y)?;
            let mut mesh = chart.configure_mesh();
            mesh.light_line_style(TRANSPARENT).x_desc(self.x.0).y_desc(self.y.0).label_style((FONT, LABEL)).draw()?;
            for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
                let mut points: Vec<_> = series.values.clone();
                points.retain(|point| point.0.is_finite() && point.1.is_finite());
                chart
                    .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
                    .label(&series.name)
                    .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 14, y + 4)], colour.filled()));
                chart.draw_series(points.into_iter().map(|point| Circle::new(point, 4, colour.filled())))?;
            }
            legend(&mut chart)
        })
    }
}

impl Bars {
    /// Draws into this file; its folder is made.
    ///
    /// # Errors
    /// What the file system said.
    pub fn draw(&self, path: &Path) -> Drawn {
        let x = Axis::exact(0.0..self.groups.len() as f64);
        let y = Axis::around(self.y.1, self.series.iter().flat_map(|series| series.values.iter().copied()));
        let floor = y.floor();
        on_paper(path, |area| {
            let mut chart = chart(area, &self.title, x, y)?;
            let mut mesh = chart.configure_mesh();
            mesh.light_line_style(TRANSPARENT).disable_x_mesh().disable_x_axis();
            mesh.y_desc(self.y.0).label_style((FONT, LABEL)).draw()?;
            let width = BARS / self.series.len().max(1) as f64;
            for (index, (series, colour)) in self.series.iter().zip(COLOURS.iter().cycle()).enumerate() {
                let bars = series.values.iter().enumerate().filter(|(_, value)| value.is_finite());
                let bars = bars.map(|(group, value)| {
                    let left = group as f64 + (1.0 - BARS) / 2.0 + index as f64 * width;
                    Rectangle::new([(left, value.max(floor)), (left + width * 0.94, floor)], colour.filled())
                });
                chart
                    .draw_series(bars)?
                    .label(&series.name)
                    .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 14, y + 4)], colour.filled()));
            }
            self.name_groups(area, &chart)?;
            legend(&mut chart)
        })
    }

    fn name_groups(&self, area: &Area<'_>, chart: &Chart<'_, '_>) -> Drawn {
        use plotters::style::text_anchor::{HPos, Pos, VPos};
        let style = (FONT, LABEL).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
        for (group, name) in self.groups.iter().enumerate() {
            let (x, _) = chart.backend_coord(&(group as f64 + 0.5, 0.0));
            let (_, below) = chart.plotting_area().get_pixel_range();
            area.draw_text(name, &style, (x, below.end + 8))?;
        }
        Ok(())
    }
}

fn on_paper(path: &Path, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Drawn {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    draw(&area)?;
    area.present()?;
    println!("drawn: {}", path.display());
    Ok(())
}

fn chart<'a, 'b>(area: &'a Area<'b>, title: &str, x: Axis, y: Axis) -> Result<Chart<'a, 'b>, Box<dyn Error>> {
    let mut builder = ChartBuilder::on(area);
    builder.margin(14).margin_right(24).caption(title, (FONT, TITLE));
    builder.x_label_area_size(46).y_label_area_size(104);
    Ok(builder.build_cartesian_2d(x, y)?)
}

fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>) -> Drawn {
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).margin(8).legend_area_size(20).label_font((FONT, LABEL));
    labels.background_style(WHITE.mix(0.85)).border_style(BLACK.mix(0.3)).draw()?;
    Ok(())
}
